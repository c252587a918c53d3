//! Byte classes: which bytes are allowed at which position.
//!
//! One table of 256 flag sets has all rules of the grammar about single bytes. Only this module
//! has the classes that decide a line (operator, keyword byte, digit), so parser, renderer and
//! helpers cannot disagree.

const OPERATOR: u8 = 1 << 0;
const DIGIT: u8 = 1 << 1;
const ALPHA: u8 = 1 << 2;
const KEYWORD: u8 = 1 << 3;
const HOST: u8 = 1 << 4;
const NAME: u8 = 1 << 5;

const CLASSES: [u8; 256] = build();

const fn build() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut byte: u8 = 0;
    loop {
        let mut flags = 0;
        if matches!(byte, b':' | b'=' | b'+' | b'-' | b'@' | b'?' | b'!') {
            flags |= OPERATOR;
        }
        if byte.is_ascii_digit() {
            flags |= DIGIT;
        }
        if byte.is_ascii_alphabetic() {
            flags |= ALPHA;
        }
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            flags |= KEYWORD;
        }
        if byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-' {
            flags |= HOST;
        }
        if byte.is_ascii_alphabetic()
            || matches!(byte, 0x24..=0x3b | b'_' | b'!' | b'?' | b'=' | b'@' | b'~')
        {
            flags |= NAME;
        }
        table[byte as usize] = flags;
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

#[inline]
const fn has(byte: u8, class: u8) -> bool {
    CLASSES[byte as usize] & class != 0
}

/// Whether `byte` is one of the seven operators `: = + - @ ? !`.
#[inline]
pub const fn is_operator(byte: u8) -> bool {
    has(byte, OPERATOR)
}

/// Whether `byte` is a decimal digit.
#[inline]
pub const fn is_digit(byte: u8) -> bool {
    has(byte, DIGIT)
}

/// Whether `byte` is an ASCII letter.
#[inline]
pub const fn is_alpha(byte: u8) -> bool {
    has(byte, ALPHA)
}

/// Whether `byte` is allowed in a keyword: digit, letter or `_`.
#[inline]
pub const fn is_keyword_byte(byte: u8) -> bool {
    has(byte, KEYWORD)
}

/// Whether `byte` is allowed in a host name: digit, letter, `.` or `-`.
#[inline]
pub const fn is_host_byte(byte: u8) -> bool {
    has(byte, HOST)
}

/// Whether `byte` is allowed in the resource or channel of a uniform.
#[inline]
pub const fn is_name_byte(byte: u8) -> bool {
    has(byte, NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_and_keyword_bytes_are_disjoint() {
        for byte in 0..=u8::MAX {
            assert!(!(is_operator(byte) && is_keyword_byte(byte)), "{byte:#x}");
        }
        assert_eq!((0..=u8::MAX).filter(|&b| is_operator(b)).count(), 7);
        assert_eq!((0..=u8::MAX).filter(|&b| is_keyword_byte(b)).count(), 63);
        assert_eq!((0..=u8::MAX).filter(|&b| is_host_byte(b)).count(), 64);
        assert_eq!(
            (0..=u8::MAX).filter(|&b| is_name_byte(b)).count(),
            52 + 24 + 6
        );
    }
}
