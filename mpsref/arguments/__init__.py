"""What users pass to kernels: arrays, numbers, pairs and choices, each converted and checked once."""
