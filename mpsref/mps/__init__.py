"""The kernels under Apple's names, for people who know Metal Performance Shaders.

>>> import numpy as np
>>> from mpsref import mps
>>> pool = mps.MPSCNNPoolingAverage(kernel_width=3, kernel_height=3, stride_in_pixels_x=2, stride_in_pixels_y=2)
>>> y, state = pool.encode(np.ones((1, 8, 8, 4), np.float32), return_state=True)
>>> y.shape, state.source_height
((1, 4, 4, 4), 8)

Names are Apple's in snake_case; there is no device, and ``backend=`` says what to compute on. Images are arrays
(N, H, W, C) or :class:`MPSImage` objects; what goes in comes out. Everything computes through the registry alone, with
the functional forms in ``mpsref``.
"""

from mpsref.mps.arithmetic import (
    MPSCNNAdd,
    MPSCNNArithmetic,
    MPSCNNArithmeticGradientState,
    MPSCNNDivide,
    MPSCNNMultiply,
    MPSCNNSubtract,
    MPSNNCompare,
    MPSNNComparisonType,
)
from mpsref.mps.arithmetic_gradient import (
    MPSCNNAddGradient,
    MPSCNNArithmeticGradient,
    MPSCNNMultiplyGradient,
    MPSCNNSubtractGradient,
)
from mpsref.mps.batch_normalization import MPSCNNBatchNormalization, MPSCNNBatchNormalizationStatistics
from mpsref.mps.batch_normalization_data_source import BatchNormalizationDataSource, MPSCNNBatchNormalizationDataSource
from mpsref.mps.batch_normalization_gradient import (
    MPSCNNBatchNormalizationGradient,
    MPSCNNBatchNormalizationStatisticsGradient,
)
from mpsref.mps.batch_normalization_state import MPSCNNBatchNormalizationState
from mpsref.mps.convolution import MPSCNNConvolution
from mpsref.mps.convolution_data_source import ArrayConvolutionDataSource, MPSCNNConvolutionDataSource
from mpsref.mps.convolution_descriptor import (
    MPSCNNConvolutionDescriptor,
    MPSCNNDepthWiseConvolutionDescriptor,
    MPSCNNSubPixelConvolutionDescriptor,
)
from mpsref.mps.convolution_gradient import MPSCNNConvolutionGradient
from mpsref.mps.convolution_state import MPSCNNConvolutionGradientState, MPSCNNConvolutionTransposeGradientState
from mpsref.mps.convolution_transpose import MPSCNNConvolutionTranspose, MPSCNNConvolutionTransposeGradient
from mpsref.mps.convolution_types import (
    MPSCNNConvolutionGradientOption,
    MPSCNNConvolutionWeightsLayout,
    MPSCNNWeightsQuantizationType,
    MPSNNConvolutionAccumulatorPrecisionOption,
)
from mpsref.mps.convolution_weights import MPSCNNConvolutionWeightsAndBiasesState
from mpsref.mps.core.command_buffer import MPSCommandBuffer, MTLCommandBufferStatus
from mpsref.mps.core.gradient_kernel import MPSCNNGradientKernel
from mpsref.mps.core.image import MPSImage, MPSImageBatch, MPSImageDescriptor, MPSTemporaryImage
from mpsref.mps.core.kernel import MPSCNNBinaryKernel, MPSCNNKernel, MPSCNNMultiaryKernel, MPSKernel
from mpsref.mps.core.padding import MPSNNDefaultPadding, MPSNNPadding
from mpsref.mps.core.properties import PropertyError
from mpsref.mps.core.serialization import SecureCoding, secure_coding
from mpsref.mps.core.state import MPSNNBinaryGradientState, MPSNNGradientState, MPSNNMultiaryGradientState, MPSState
from mpsref.mps.core.types import (
    MPSDataLayout,
    MPSImageEdgeMode,
    MPSImageFeatureChannelFormat,
    MPSNNPaddingMethod,
    MPSOffset,
    MPSRectNoClip,
    MPSRegion,
    MTLOrigin,
    MTLRegion,
    MTLSize,
)
from mpsref.mps.crop_and_resize import MPSNNCropAndResizeBilinear
from mpsref.mps.dropout import MPSCNNDropout, MPSCNNDropoutGradient, MPSCNNDropoutGradientState
from mpsref.mps.fully_connected import MPSCNNFullyConnected, MPSCNNFullyConnectedGradient
from mpsref.mps.group_normalization import (
    GroupNormalizationDataSource,
    MPSCNNGroupNormalization,
    MPSCNNGroupNormalizationDataSource,
    MPSCNNGroupNormalizationGradient,
    MPSCNNGroupNormalizationGradientState,
)
from mpsref.mps.image_normalization_data_source import (
    InstanceNormalizationDataSource,
    MPSCNNInstanceNormalizationDataSource,
)
from mpsref.mps.instance_normalization import (
    MPSCNNInstanceNormalization,
    MPSCNNInstanceNormalizationGradient,
    MPSCNNInstanceNormalizationGradientState,
)
from mpsref.mps.loss import (
    MPSCNNLoss,
    MPSCNNLossDataDescriptor,
    MPSCNNLossDescriptor,
    MPSCNNLossLabels,
    MPSCNNLossType,
    MPSCNNReductionType,
    MPSCNNYOLOLoss,
    MPSNNForwardLoss,
    MPSNNInitialGradient,
    MPSNNLossGradient,
)
from mpsref.mps.neuron import (
    MPSCNNNeuron,
    MPSCNNNeuronAbsolute,
    MPSCNNNeuronELU,
    MPSCNNNeuronExponential,
    MPSCNNNeuronGradient,
    MPSCNNNeuronHardSigmoid,
    MPSCNNNeuronLinear,
    MPSCNNNeuronLogarithm,
    MPSCNNNeuronPower,
    MPSCNNNeuronPReLU,
    MPSCNNNeuronReLU,
    MPSCNNNeuronReLUN,
    MPSCNNNeuronSigmoid,
    MPSCNNNeuronSoftPlus,
    MPSCNNNeuronSoftSign,
    MPSCNNNeuronTanH,
    MPSCNNNeuronType,
    MPSNNNeuronDescriptor,
)
from mpsref.mps.normalization_states import (
    MPSCNNNormalizationGammaAndBetaState,
    MPSCNNNormalizationMeanAndVarianceState,
)
from mpsref.mps.optimizer import (
    MPSNNOptimizer,
    MPSNNOptimizerAdam,
    MPSNNOptimizerDescriptor,
    MPSNNOptimizerRMSProp,
    MPSNNOptimizerStochasticGradientDescent,
    MPSNNRegularizationType,
)
from mpsref.mps.pad import MPSImageCoordinate, MPSNNPad, MPSNNPadGradient
from mpsref.mps.pooling import (
    MPSCNNDilatedPoolingMax,
    MPSCNNDilatedPoolingMaxGradient,
    MPSCNNPooling,
    MPSCNNPoolingAverage,
    MPSCNNPoolingAverageGradient,
    MPSCNNPoolingGradient,
    MPSCNNPoolingL2Norm,
    MPSCNNPoolingL2NormGradient,
    MPSCNNPoolingMax,
    MPSCNNPoolingMaxGradient,
)
from mpsref.mps.reduce import (
    MPSNNReduceColumnMax,
    MPSNNReduceColumnMean,
    MPSNNReduceColumnMin,
    MPSNNReduceColumnSum,
    MPSNNReduceFeatureChannelsArgumentMax,
    MPSNNReduceFeatureChannelsArgumentMin,
    MPSNNReduceFeatureChannelsMax,
    MPSNNReduceFeatureChannelsMean,
    MPSNNReduceFeatureChannelsMin,
    MPSNNReduceFeatureChannelsSum,
    MPSNNReduceRowMax,
    MPSNNReduceRowMean,
    MPSNNReduceRowMin,
    MPSNNReduceRowSum,
    MPSNNReduceUnary,
)
from mpsref.mps.reduce_weighted import (
    MPSNNReduceBinary,
    MPSNNReduceFeatureChannelsAndWeightsMean,
    MPSNNReduceFeatureChannelsAndWeightsSum,
)
from mpsref.mps.reshape import MPSNNReshape, MPSNNReshapeGradient
from mpsref.mps.resize import MPSNNResizeBilinear
from mpsref.mps.slice_ import MPSNNSlice
from mpsref.mps.softmax import MPSCNNLogSoftMax, MPSCNNLogSoftMaxGradient, MPSCNNSoftMax, MPSCNNSoftMaxGradient
from mpsref.mps.upsampling import (
    MPSCNNUpsampling,
    MPSCNNUpsamplingBilinear,
    MPSCNNUpsamplingBilinearGradient,
    MPSCNNUpsamplingGradient,
    MPSCNNUpsamplingNearest,
    MPSCNNUpsamplingNearestGradient,
)
from mpsref.mps.windowed_normalization import (
    MPSCNNCrossChannelNormalization,
    MPSCNNCrossChannelNormalizationGradient,
    MPSCNNLocalContrastNormalization,
    MPSCNNLocalContrastNormalizationGradient,
    MPSCNNSpatialNormalization,
    MPSCNNSpatialNormalizationGradient,
)

__all__ = [
    "ArrayConvolutionDataSource",
    "BatchNormalizationDataSource",
    "GroupNormalizationDataSource",
    "InstanceNormalizationDataSource",
    "MPSCNNAdd",
    "MPSCNNAddGradient",
    "MPSCNNArithmetic",
    "MPSCNNArithmeticGradient",
    "MPSCNNArithmeticGradientState",
    "MPSCNNBatchNormalization",
    "MPSCNNBatchNormalizationDataSource",
    "MPSCNNBatchNormalizationGradient",
    "MPSCNNBatchNormalizationState",
    "MPSCNNBatchNormalizationStatistics",
    "MPSCNNBatchNormalizationStatisticsGradient",
    "MPSCNNBinaryKernel",
    "MPSCNNConvolution",
    "MPSCNNConvolutionDataSource",
    "MPSCNNConvolutionDescriptor",
    "MPSCNNConvolutionGradient",
    "MPSCNNConvolutionGradientOption",
    "MPSCNNConvolutionGradientState",
    "MPSCNNConvolutionTranspose",
    "MPSCNNConvolutionTransposeGradient",
    "MPSCNNConvolutionTransposeGradientState",
    "MPSCNNConvolutionWeightsAndBiasesState",
    "MPSCNNConvolutionWeightsLayout",
    "MPSCNNCrossChannelNormalization",
    "MPSCNNCrossChannelNormalizationGradient",
    "MPSCNNDepthWiseConvolutionDescriptor",
    "MPSCNNDilatedPoolingMax",
    "MPSCNNDilatedPoolingMaxGradient",
    "MPSCNNDivide",
    "MPSCNNDropout",
    "MPSCNNDropoutGradient",
    "MPSCNNDropoutGradientState",
    "MPSCNNFullyConnected",
    "MPSCNNFullyConnectedGradient",
    "MPSCNNGradientKernel",
    "MPSCNNGroupNormalization",
    "MPSCNNGroupNormalizationDataSource",
    "MPSCNNGroupNormalizationGradient",
    "MPSCNNGroupNormalizationGradientState",
    "MPSCNNInstanceNormalization",
    "MPSCNNInstanceNormalizationDataSource",
    "MPSCNNInstanceNormalizationGradient",
    "MPSCNNInstanceNormalizationGradientState",
    "MPSCNNKernel",
    "MPSCNNLocalContrastNormalization",
    "MPSCNNLocalContrastNormalizationGradient",
    "MPSCNNLogSoftMax",
    "MPSCNNLogSoftMaxGradient",
    "MPSCNNLoss",
    "MPSCNNLossDataDescriptor",
    "MPSCNNLossDescriptor",
    "MPSCNNLossLabels",
    "MPSCNNLossType",
    "MPSCNNMultiaryKernel",
    "MPSCNNMultiply",
    "MPSCNNMultiplyGradient",
    "MPSCNNNeuron",
    "MPSCNNNeuronAbsolute",
    "MPSCNNNeuronELU",
    "MPSCNNNeuronExponential",
    "MPSCNNNeuronGradient",
    "MPSCNNNeuronHardSigmoid",
    "MPSCNNNeuronLinear",
    "MPSCNNNeuronLogarithm",
    "MPSCNNNeuronPReLU",
    "MPSCNNNeuronPower",
    "MPSCNNNeuronReLU",
    "MPSCNNNeuronReLUN",
    "MPSCNNNeuronSigmoid",
    "MPSCNNNeuronSoftPlus",
    "MPSCNNNeuronSoftSign",
    "MPSCNNNeuronTanH",
    "MPSCNNNeuronType",
    "MPSCNNNormalizationGammaAndBetaState",
    "MPSCNNNormalizationMeanAndVarianceState",
    "MPSCNNPooling",
    "MPSCNNPoolingAverage",
    "MPSCNNPoolingAverageGradient",
    "MPSCNNPoolingGradient",
    "MPSCNNPoolingL2Norm",
    "MPSCNNPoolingL2NormGradient",
    "MPSCNNPoolingMax",
    "MPSCNNPoolingMaxGradient",
    "MPSCNNReductionType",
    "MPSCNNSoftMax",
    "MPSCNNSoftMaxGradient",
    "MPSCNNSpatialNormalization",
    "MPSCNNSpatialNormalizationGradient",
    "MPSCNNSubPixelConvolutionDescriptor",
    "MPSCNNSubtract",
    "MPSCNNSubtractGradient",
    "MPSCNNUpsampling",
    "MPSCNNUpsamplingBilinear",
    "MPSCNNUpsamplingBilinearGradient",
    "MPSCNNUpsamplingGradient",
    "MPSCNNUpsamplingNearest",
    "MPSCNNUpsamplingNearestGradient",
    "MPSCNNWeightsQuantizationType",
    "MPSCNNYOLOLoss",
    "MPSCommandBuffer",
    "MPSDataLayout",
    "MPSImage",
    "MPSImageBatch",
    "MPSImageCoordinate",
    "MPSImageDescriptor",
    "MPSImageEdgeMode",
    "MPSImageFeatureChannelFormat",
    "MPSKernel",
    "MPSNNBinaryGradientState",
    "MPSNNCompare",
    "MPSNNComparisonType",
    "MPSNNConvolutionAccumulatorPrecisionOption",
    "MPSNNCropAndResizeBilinear",
    "MPSNNDefaultPadding",
    "MPSNNForwardLoss",
    "MPSNNGradientState",
    "MPSNNInitialGradient",
    "MPSNNLossGradient",
    "MPSNNMultiaryGradientState",
    "MPSNNNeuronDescriptor",
    "MPSNNOptimizer",
    "MPSNNOptimizerAdam",
    "MPSNNOptimizerDescriptor",
    "MPSNNOptimizerRMSProp",
    "MPSNNOptimizerStochasticGradientDescent",
    "MPSNNPad",
    "MPSNNPadGradient",
    "MPSNNPadding",
    "MPSNNPaddingMethod",
    "MPSNNReduceBinary",
    "MPSNNReduceColumnMax",
    "MPSNNReduceColumnMean",
    "MPSNNReduceColumnMin",
    "MPSNNReduceColumnSum",
    "MPSNNReduceFeatureChannelsAndWeightsMean",
    "MPSNNReduceFeatureChannelsAndWeightsSum",
    "MPSNNReduceFeatureChannelsArgumentMax",
    "MPSNNReduceFeatureChannelsArgumentMin",
    "MPSNNReduceFeatureChannelsMax",
    "MPSNNReduceFeatureChannelsMean",
    "MPSNNReduceFeatureChannelsMin",
    "MPSNNReduceFeatureChannelsSum",
    "MPSNNReduceRowMax",
    "MPSNNReduceRowMean",
    "MPSNNReduceRowMin",
    "MPSNNReduceRowSum",
    "MPSNNReduceUnary",
    "MPSNNRegularizationType",
    "MPSNNReshape",
    "MPSNNReshapeGradient",
    "MPSNNResizeBilinear",
    "MPSNNSlice",
    "MPSOffset",
    "MPSRectNoClip",
    "MPSRegion",
    "MPSState",
    "MPSTemporaryImage",
    "MTLCommandBufferStatus",
    "MTLOrigin",
    "MTLRegion",
    "MTLSize",
    "PropertyError",
    "SecureCoding",
    "secure_coding",
]
