//! Empty: only the manifest and the lock file of this package are used.
