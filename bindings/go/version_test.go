package weir

import "testing"

func TestLaterMinorVersionsAreCompatible(t *testing.T) {
	const wanted = 0x0001_0002
	for library, want := range map[uint32]bool{
		wanted:      true,
		0x0001_0003: true,
		0x0001_0001: false,
		0x0000_0002: false,
		0x0002_0002: false,
		0x8001_0002: false,
	} {
		if isCompatible(library, wanted) != want {
			t.Errorf("%#x", library)
		}
	}
	if !isCompatible(2, 1) {
		t.Error("0.2 has what 0.1 has")
	}
}
