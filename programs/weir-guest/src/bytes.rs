//! Reads big-endian numbers from bytes that may be too short.

macro_rules! be {
    ($($name:ident: $kind:ty;)*) => {$(
        /// The big-endian number at an index; `None` after the end.
        #[must_use]
        pub fn $name(bytes: &[u8], at: usize) -> Option<$kind> {
            const N: usize = size_of::<$kind>();
            let mut number = [0; N];
            number.copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
            Some(<$kind>::from_be_bytes(number))
        }
    )*};
}

be! {
    be_u16: u16;
    be_u32: u32;
    be_u64: u64;
    be_i32: i32;
    be_i64: i64;
}
