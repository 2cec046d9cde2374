from .over_objc import backend as backend
