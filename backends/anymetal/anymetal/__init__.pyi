from . import clang as clang
from . import cuda as cuda
from . import metalcompute as metalcompute
from .api import Launch as Launch
from .api import Library as Library
from .api import compile as compile
from .clang.device import sparse as sparse
from .frontend.signature import at as at
from .frontend.signature import undefined as undefined
from .images import Sampler as Sampler
from .images import Texture as Texture
from .images import slices as slices
from .images import unslice as unslice
from .interface import ArrayDevice as ArrayDevice
from .interface import Buffer as Buffer
from .interface import CompileError as CompileError
from .interface import Device as Device
from .interface import Function as Function
from .interface import Handle as Handle
from .interface import Kernel as Kernel
from .interface import LaunchError as LaunchError

__version__: str
