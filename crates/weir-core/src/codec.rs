//! Primitives that every binary format of Weir shares (batch, snapshot, block).
//!
//! Numbers are little-endian. Variable-length numbers are LEB128 in their shortest form, so that
//! equal content has equal bytes.
//!
//! Invariant: no input causes a panic, or an allocation of a size that the input chooses.

/// The input ends too early, or its next bytes are not a valid value of the requested type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short;

/// Reads from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    whole: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            whole: bytes.len(),
        }
    }

    /// Reads from byte `at` of `bytes`, or from their end if there are fewer bytes.
    pub fn after(bytes: &'a [u8], at: usize) -> Self {
        Self {
            rest: bytes.get(at..).unwrap_or_default(),
            whole: bytes.len(),
        }
    }

    /// Bytes read so far.
    #[inline]
    pub fn at(&self) -> usize {
        self.whole - self.rest.len()
    }

    /// Whether everything was read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The unread bytes.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Short> {
        let (first, rest) = self.rest.split_first().ok_or(Short)?;
        self.rest = rest;
        Ok(*first)
    }

    /// `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (first, rest) = self.rest.split_first_chunk::<N>().ok_or(Short)?;
        self.rest = rest;
        Ok(*first)
    }

    /// Eight bytes, little-endian.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_le_bytes)
    }

    /// `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Short> {
        let (first, rest) = self.rest.split_at_checked(len).ok_or(Short)?;
        self.rest = rest;
        Ok(first)
    }

    /// A LEB128 number of at most ten bytes in its shortest form.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Short> {
        let first = self.u8()?;
        if first < 0x80 {
            return Ok(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || byte == 0 {
                return Err(Short);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Short)
    }

    /// A LEB128 number of bytes that fits in memory.
    #[inline]
    pub fn length(&mut self) -> Result<usize, Short> {
        usize::try_from(self.varint()?).map_err(|_| Short)
    }

    /// A byte string, preceded by its LEB128 length.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Short> {
        let len = self.length()?;
        self.take(len)
    }

    /// A byte string, preceded by a one-byte length.
    #[inline]
    pub fn short_bytes(&mut self) -> Result<&'a [u8], Short> {
        let len = self.u8()?;
        self.take(usize::from(len))
    }
}

/// Appends a LEB128 number.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

#[inline]
fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0] & 0x7f
}

/// Appends the LEB128 length of `bytes`, then `bytes`.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a one-byte length, then `bytes`. The caller must have checked the length.
pub fn put_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    assert!(bytes.len() <= 255, "length was checked by the caller");
    out.push(bytes.len().to_le_bytes()[0]);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_only_in_their_shortest_form() {
        for value in [0, 1, 127, 128, 300, 1 << 35, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.is_empty());
            assert_eq!(Reader::new(&bytes[..bytes.len() - 1]).varint(), Err(Short));
        }
        assert_eq!(Reader::new(&[0x80, 0x00]).varint(), Err(Short));
        assert_eq!(Reader::new(&[0xff; 11]).varint(), Err(Short));
        let too_large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(Reader::new(&too_large).varint(), Err(Short));
    }
}
