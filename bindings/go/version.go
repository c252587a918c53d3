package weir

// isCompatible reports whether a library has everything of a version of the interface: an equal
// major version, and at least its minor version.
func isCompatible(library, wanted uint32) bool {
	return library>>16 == wanted>>16 && library >= wanted
}
