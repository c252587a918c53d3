package weir

// fits says whether a library has all that a version of the interface has: its
// major version, and not a lesser minor one.
func fits(library, wanted uint32) bool {
	return library>>16 == wanted>>16 && library >= wanted
}
