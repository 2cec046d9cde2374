"""The explorer: a page in the browser that shows the windows and gradients of a kernel, ``mpsref explore``."""
