//! Conversions of numbers that always fit.
//!
//! Another limit guarantees that the number fits, and each call names this limit. A number that
//! does not fit is a bug in Weir: it causes a panic, so that no wrong number gets into a log or a
//! table.

macro_rules! conversions {
    ($($name:ident $to:ident $what:literal,)*) => {$(
        #[doc = concat!("`number` as `", stringify!($to), "`. `why` names that limit.")]
        ///
        /// # Panics
        /// If the number does not fit.
        #[inline]
        #[track_caller]
        pub fn $name<N>(number: N, why: &str) -> $to
        where
            $to: TryFrom<N>,
        {
            let Ok(number) = $to::try_from(number) else {
                panic!(concat!("does not fit ", $what, ", although {}"), why)
            };
            number
        }
    )*};
}

conversions! {
    to_u8 u8 "8 bits",
    to_u16 u16 "16 bits",
    to_u32 u32 "32 bits",
    to_i32 i32 "32 bits with a sign",
    to_i64 i64 "64 bits with a sign",
    to_usize usize "the memory of this machine",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "although a test says so")]
    fn a_number_that_does_not_fit_is_a_panic() {
        assert_eq!(to_u32(u64::from(u32::MAX), "it is the largest"), u32::MAX);
        to_u32(1_u64 << 32, "a test says so");
    }
}
