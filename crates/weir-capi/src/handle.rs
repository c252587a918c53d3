//! Reads and writes memory of the caller. No other module does.
//!
//! A [`Caller`] represents one call. The code that creates it guarantees that the pointers of that
//! call conform to the header: each is NULL, or valid for the given number of values until the call
//! returns, and no other thread changes the values in the meantime. This module checks NULL,
//! alignment, length and the size of a structure.
//!
//! Invariants:
//! - No reference outlives the call.
//! - Nothing is written outside of the memory that the caller passed.
#![allow(
    unsafe_code,
    reason = "memory of the caller can be accessed in no other way"
)]

use std::alloc::Layout;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use weir::ErrorCode;

use crate::error::{Fail, Fault, number};
use crate::parser_state::ParserState;
use crate::raw::{self, Slice};

/// Largest number of elements of an array of the caller.
pub(crate) const ELEMENTS_MAX: usize = 1 << 16;
/// Largest number of elements of an array of frames or of their properties.
pub(crate) const FRAMES_MAX: usize = 1 << 24;
/// Largest size of a text, key, name or token of the caller, in bytes. The store has smaller
/// limits.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 20;
/// Largest size of other data of the caller except pages, in bytes: more than a value may have.
const BYTES_MAX: usize = u32::MAX as usize;
/// Largest structure of a later version of the header, in bytes.
const STRUCT_BYTES_MAX: usize = 4096;

/// The right to access the memory that the caller passed to one call.
pub(crate) struct Caller {
    _one_call: (),
}

/// A structure of the header that is valid with all bytes zero and with any bytes: it consists of
/// integers, pointers and such structures.
///
/// # Safety
/// The type is `repr(C)`, without a field that has invalid bit patterns.
pub(crate) unsafe trait Plain: Copy {}

/// A [`Plain`] structure that begins with `struct_size`.
///
/// # Safety
/// Its first field is a `u32`. `FIRST_BYTES` is at least the size of that field and at most the
/// size of the type.
pub(crate) unsafe trait Sized32: Plain {
    /// Size of its first version, in bytes. A program that was compiled with that header passes no
    /// more bytes.
    const FIRST_BYTES: usize;
}

macro_rules! plain {
    ($($name:ident)*) => { $(
        // SAFETY: `repr(C)`, of integers, pointers, optional function pointers and such structures.
        unsafe impl Plain for raw::$name {}
    )* };
}
macro_rules! sized32 {
    ($($name:ident $first:literal,)*) => { $(
        plain!($name);
        const _: () = assert!($first >= size_of::<u32>());
        const _: () = assert!($first <= size_of::<raw::$name>());
        // SAFETY: the first field is `struct_size: u32`. The assertions above check the number.
        unsafe impl Sized32 for raw::$name {
            const FIRST_BYTES: usize = $first;
        }
    )* };
}
plain! {
    Slice Expect Step Param Loan Frame Meta Frames Claim Verdict Record Error
    PsycEvent PsycCursor PsycPart PsycPacketId PsycCompact PsycBinding PsycModifier PsycItem PsycEntry PsycStep
}
// The numbers never change. If a structure grows, the number stays the size of its first version.
sized32! {
    PageInfo 96, CodeInfo 64, OpenOptions 72, ConnectOptions 104, Info 40, TopicOptions 144,
    Intention 160, TopicInfo 56, ReadOptions 24, GroupOptions 80, GroupInfo 80, QueryOptions 208,
    SourceOptions 120, TopicsOptions 56,
    PsycParser 320, PsycParserOptions 72, PsycParserInfo 40, PsycUniform 256, PsycName 48,
    PsycTemplate 56, PsycPacket 104, PsycSizes 32,
}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: an integer.
unsafe impl Plain for usize {}
// SAFETY: an integer.
unsafe impl Plain for i64 {}

impl Caller {
    /// For the current call.
    ///
    /// # Safety
    /// Every pointer that is passed to the methods of this value was passed to this call, directly
    /// or in a structure. It conforms to the header. The value must not outlive the call.
    pub(crate) const unsafe fn new() -> Self {
        Self { _one_call: () }
    }

    /// A page of the caller. The engine checks its length before it reads the page.
    pub(crate) fn page(&self, slice: Slice) -> Result<&[u8], Fail> {
        Ok(self.values(slice.ptr, slice.len, isize::MAX.unsigned_abs())?)
    }

    /// Bytes of the caller, of at most [`BYTES_MAX`].
    pub(crate) fn bytes(&self, slice: Slice) -> Result<&[u8], Fail> {
        Ok(self.values(slice.ptr, slice.len, BYTES_MAX)?)
    }

    /// As `bytes`, of at most [`TEXT_BYTES_MAX`].
    pub(crate) fn short(&self, slice: Slice) -> Result<&[u8], Fail> {
        Ok(self.values(slice.ptr, slice.len, TEXT_BYTES_MAX)?)
    }

    /// A copy of bytes of the caller, if there is memory for it.
    pub(crate) fn owned(&self, slice: Slice) -> Result<Vec<u8>, Fail> {
        let bytes = self.bytes(slice)?;
        let mut copy = memory(bytes.len())?;
        copy.extend_from_slice(bytes);
        Ok(copy)
    }

    /// Text of the caller, of at most [`TEXT_BYTES_MAX`].
    pub(crate) fn text(&self, slice: Slice, what: &'static str) -> Result<&str, Fail> {
        std::str::from_utf8(self.short(slice)?).map_err(|error| {
            let mut fail = Fail::new(ErrorCode::BadOption, format!("{what} is not UTF-8"));
            fail.offset = error.valid_up_to() as u64;
            fail
        })
    }

    /// An array of the caller, of at most [`ELEMENTS_MAX`].
    pub(crate) fn array<T: Plain>(&self, ptr: *const T, count: usize) -> Result<&[T], Fail> {
        Ok(self.values(ptr, count, ELEMENTS_MAX)?)
    }

    /// An array of the caller, of at most [`FRAMES_MAX`].
    pub(crate) fn long_array<T: Plain>(&self, ptr: *const T, count: usize) -> Result<&[T], Fail> {
        Ok(self.values(ptr, count, FRAMES_MAX)?)
    }

    fn values<T>(&self, ptr: *const T, count: usize, most: usize) -> Result<&[T], ErrorCode> {
        self.check(ptr, count, most)?;
        if count == 0 {
            return Ok(&[]);
        }
        // SAFETY: the pointer is not NULL and aligned, and the size is at most that of an object.
        // The caller of `new` promised that so many values exist and do not change during the call.
        // The lifetime is that of `self`.
        Ok(unsafe { std::slice::from_raw_parts(ptr, count) })
    }

    #[allow(
        clippy::unused_self,
        reason = "a check belongs to a call, although it reads no field"
    )]
    fn check<T>(&self, ptr: *const T, count: usize, most: usize) -> Result<(), ErrorCode> {
        if count == 0 {
            return Ok(());
        }
        if ptr.is_null() {
            return Err(ErrorCode::NullPointer);
        }
        let bytes = count.checked_mul(size_of::<T>());
        if count > most || bytes.is_none_or(|bytes| bytes > isize::MAX.unsigned_abs()) {
            return Err(ErrorCode::BadLength);
        }
        if !ptr.is_aligned() {
            return Err(ErrorCode::Misaligned);
        }
        Ok(())
    }

    /// One value of the caller; `None` for NULL.
    pub(crate) fn optional<T: Plain>(&self, ptr: *const T) -> Result<Option<T>, Fail> {
        if ptr.is_null() {
            return Ok(None);
        }
        Ok(self.values(ptr, 1, 1)?.first().copied())
    }

    /// A structure with `struct_size`; all zero for NULL.
    pub(crate) fn options<T: Sized32>(&self, ptr: *const T) -> Result<T, Fail> {
        if ptr.is_null() {
            // SAFETY: all bytes zero is a value of a `Plain` type.
            return Ok(unsafe { std::mem::zeroed() });
        }
        let size = self.struct_size(ptr)?;
        self.read(ptr, size)
    }

    /// An array of structures with `struct_size`. The `struct_size` of the first one is the step.
    pub(crate) fn stepped<T: Sized32>(
        &self,
        ptr: *const T,
        count: usize,
        most: usize,
    ) -> Result<Vec<T>, Fail> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if count > most {
            return Err(Fail::of(ErrorCode::BadLength));
        }
        let step = self.struct_size(ptr)?;
        if step % align_of::<T>() != 0 {
            return Err(Fail::of(ErrorCode::BadStruct));
        }
        let mut all = Vec::with_capacity(count);
        for at in 0..count {
            let element = ptr.wrapping_byte_add(at * step);
            let found = self.struct_size(element).and_then(|size| {
                if size == step {
                    self.read(element, size)
                } else {
                    Err(Fail::of(ErrorCode::BadStruct))
                }
            });
            all.push(found.map_err(|fail| fail.at_index(at))?);
        }
        Ok(all)
    }

    fn struct_size<T: Sized32>(&self, ptr: *const T) -> Result<usize, Fail> {
        if ptr.is_null() {
            return Err(Fail::of(ErrorCode::NullPointer));
        }
        if !ptr.is_aligned() {
            return Err(Fail::of(ErrorCode::Misaligned));
        }
        let size = self.values(ptr.cast::<u32>(), 1, 1)?;
        let size = size.first().map_or(0, |size| *size as usize);
        let first = T::FIRST_BYTES;
        if (first..=STRUCT_BYTES_MAX).contains(&size) {
            Ok(size)
        } else {
            let text = format!("struct_size is {size}; it must be {first} to {STRUCT_BYTES_MAX}");
            Err(Fail::new(ErrorCode::BadStruct, text))
        }
    }

    /// Reads a structure of which the caller knows `size` bytes. Fields after them are zero. Bytes
    /// that the library does not know must be zero.
    fn read<T: Sized32>(&self, ptr: *const T, size: usize) -> Result<T, Fail> {
        let known = size_of::<T>().min(size);
        let first = ptr.cast::<u8>();
        let unknown = self.values(
            first.wrapping_add(known),
            size.saturating_sub(known),
            STRUCT_BYTES_MAX,
        )?;
        if unknown.iter().any(|byte| *byte != 0) {
            let text = "a field is set that this library does not know";
            return Err(Fail::new(ErrorCode::BadStruct, text.to_owned()));
        }
        self.check(first, known, STRUCT_BYTES_MAX)?;
        let mut value = zeroed::<T>();
        // SAFETY: the pointer is not NULL. The caller of `new` promised that its structure has
        // `size` bytes, which are at least `known`. `value` has at least `known` bytes too, does
        // not overlap memory of the caller, and any bytes are a value of a `Plain` type.
        unsafe { std::ptr::copy_nonoverlapping(first, (&raw mut value).cast::<u8>(), known) };
        Ok(value)
    }

    /// Checks that `count` values can be written to `out`.
    pub(crate) fn check_output<T>(&self, out: *mut T, count: usize) -> Result<(), ErrorCode> {
        self.check(out.cast_const(), count, ELEMENTS_MAX)
    }

    /// As `check_output`, for at most [`FRAMES_MAX`] values.
    pub(crate) fn check_frames_output<T>(
        &self,
        out: *mut T,
        count: usize,
    ) -> Result<(), ErrorCode> {
        self.check(out.cast_const(), count, FRAMES_MAX)
    }

    /// Writes a value. Fails if [`check_output`](Self::check_output) does.
    pub(crate) fn write<T: Copy>(&self, out: *mut T, value: T) -> Result<(), ErrorCode> {
        self.write_all(out, std::slice::from_ref(&value))
    }

    /// As `write`; does nothing if `out` is NULL.
    pub(crate) fn write_if<T: Copy>(&self, out: *mut T, value: T) -> Result<(), Fail> {
        if out.is_null() {
            return Ok(());
        }
        Ok(self.write(out, value)?)
    }

    /// Writes consecutive values.
    pub(crate) fn write_all<T: Copy>(&self, out: *mut T, values: &[T]) -> Result<(), ErrorCode> {
        self.check_output(out, values.len())?;
        if !values.is_empty() {
            // SAFETY: the pointer is not NULL and aligned. The caller of `new` promised that it is
            // valid for this many values. They cannot overlap `values`, which belong to the
            // library.
            unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), out, values.len()) };
        }
        Ok(())
    }

    /// Writes an info, at most the size that the caller knows.
    pub(crate) fn write_info<T: Sized32>(&self, out: *mut T, info: &T) -> Result<(), Fail> {
        let size = self.info_size(out)?;
        let known = size_of::<T>().min(size);
        // SAFETY: `info` is a live value of that many bytes. It was created from zeros by `zeroed`,
        // so the padding between its fields is initialised too.
        let bytes =
            unsafe { std::slice::from_raw_parts(std::ptr::from_ref(info).cast::<u8>(), known) };
        // The caller's `struct_size` stays unchanged.
        let start = size_of::<u32>();
        let first = out.cast::<u8>();
        self.write_all(
            first.wrapping_add(start),
            bytes.get(start..).unwrap_or_default(),
        )?;
        for at in known..size {
            self.write(first.wrapping_add(at), 0)?;
        }
        Ok(())
    }

    /// Checks that an info can be written. Returns its size as the caller knows it.
    pub(crate) fn info_size<T: Sized32>(&self, out: *mut T) -> Result<usize, Fail> {
        self.struct_size(out.cast_const())
    }

    /// Writes the error, unless the caller passed NULL for it.
    pub(crate) fn report(&self, out: *mut raw::Error, fail: &Fail) {
        let location = (fail.source, fail.detail, fail.offset);
        self.report_parts(out, fail.number(), location, &fail.message);
    }

    /// As `report`, for the codec. Returns the result of the call.
    #[cold]
    pub(crate) fn report_fault(&self, out: *mut raw::Error, fault: &Fault) -> i32 {
        let number = number(fault.code);
        self.report_parts(
            out,
            number,
            (u32::MAX, fault.detail, fault.offset),
            fault.text,
        );
        number
    }

    fn report_parts(
        &self,
        out: *mut raw::Error,
        code: i32,
        (source, detail, offset): (u32, u32, u64),
        message: &str,
    ) {
        if out.is_null() || !out.is_aligned() {
            return;
        }
        let mut error = zeroed::<raw::Error>();
        error.code = code;
        error.source = source;
        error.detail = detail;
        error.offset = offset;
        let end = message.floor_char_boundary(error.message.len() - 1);
        for (to, from) in error.message.iter_mut().zip(message.bytes().take(end)) {
            *to = from.cast_signed();
        }
        // The address was checked above. An error of this write cannot be reported.
        let _ = self.write(out, error);
    }

    /// The output of a call that also reads memory of the caller, and the reader of that memory,
    /// which checks each slice for an overlap. An output of bytes may be as large as an object, any
    /// other has at most [`ELEMENTS_MAX`] values.
    pub(crate) fn output<T>(
        &self,
        out: *mut T,
        capacity: usize,
    ) -> Result<(NonOverlapping<'_>, Output<'_, T>), ErrorCode> {
        let most = if size_of::<T>() == 1 {
            isize::MAX.unsigned_abs()
        } else {
            ELEMENTS_MAX
        };
        self.check(out.cast_const(), capacity, most)?;
        let start = out.addr();
        let inputs = NonOverlapping {
            caller: self,
            start,
            end: start.wrapping_add(capacity.wrapping_mul(size_of::<T>())),
        };
        let output = Output {
            out,
            capacity,
            _call: PhantomData,
        };
        Ok((inputs, output))
    }

    /// Stores a value in the memory of a parser.
    pub(crate) fn seal<T: Sealable>(
        &self,
        ptr: *mut raw::PsycParser,
        value: T,
    ) -> Result<(), Fault> {
        const { assert!(size_of::<Sealed<T>>() <= OPAQUE_BYTES && align_of::<Sealed<T>>() <= 8) };
        const {
            let end = std::mem::offset_of!(raw::PsycParser, opaque) + OPAQUE_BYTES;
            assert!(end <= <raw::PsycParser as Sized32>::FIRST_BYTES);
        };
        self.struct_size(ptr.cast_const())?;
        let sealed = Sealed {
            front: FRONT,
            value,
            back: BACK,
        };
        // SAFETY: the pointer is not NULL and aligned, which was checked with the size. The memory
        // belongs to the caller. The assertions above ensure that the field is inside of each
        // accepted size, and that it is large enough for the value.
        unsafe { (&raw mut (*ptr).opaque).cast::<Sealed<T>>().write(sealed) };
        Ok(())
    }

    /// The value in the memory of a parser.
    #[inline]
    #[allow(
        clippy::mut_from_ref,
        reason = "the memory belongs to the caller, who uses a parser in one call at a time"
    )]
    pub(crate) fn sealed<T: Sealable>(
        &self,
        ptr: *mut raw::PsycParser,
    ) -> Result<&mut T, ErrorCode> {
        self.check(ptr.cast_const(), 1, 1)?;
        // SAFETY: the pointer is not NULL and aligned; the caller promises that the structure
        // exists.
        let sealed = unsafe { &raw mut (*ptr).opaque }.cast::<Sealed<T>>();
        // SAFETY: the read is inside of that field, and any bytes are a valid number.
        let front = unsafe { (&raw const (*sealed).front).read() };
        // SAFETY: as for `front`.
        let back = unsafe { (&raw const (*sealed).back).read() };
        if (front, back) != (FRONT, BACK) {
            return Err(ErrorCode::BadHandle);
        }
        // SAFETY: `seal` wrote a value between the two numbers. The header requires that only this
        // library changes it, and that one thread uses it at a time. The reference ends with the
        // call, and `T` is always one type, which owns nothing.
        Ok(unsafe { &mut (*sealed).value })
    }
}

/// Size of the opaque part of a parser, in bytes.
const OPAQUE_BYTES: usize = size_of::<[u64; 39]>();
/// Stored before the value in the memory of a parser; [`BACK`] is stored after it. Uninitialised,
/// cleared or foreign memory is unlikely to contain both.
const FRONT: u64 = 0x5745_4952_a7c3_19e5;
/// See [`FRONT`].
const BACK: u64 = 0x5c3e_917a_5253_5053;

/// A value in memory of the caller.
#[repr(C)]
struct Sealed<T> {
    front: u64,
    value: T,
    back: u64,
}

/// A value that may be stored in the memory of a parser.
///
/// # Safety
/// There is only one such type. It owns nothing, so that it may be forgotten or copied byte by
/// byte.
pub(crate) unsafe trait Sealable {}

// SAFETY: numbers and enumerations only.
unsafe impl Sealable for ParserState {}

const _: () = assert!(!std::mem::needs_drop::<ParserState>());

/// Reads memory of the caller that must not overlap the output of the call.
pub(crate) struct NonOverlapping<'c> {
    caller: &'c Caller,
    /// The address range of the output.
    start: usize,
    end: usize,
}

impl<'c> NonOverlapping<'c> {
    /// An array of the caller.
    #[inline]
    pub(crate) fn values<T: Plain>(
        &self,
        ptr: *const T,
        count: usize,
        most: usize,
    ) -> Result<&'c [T], Fault> {
        let values = self.caller.values(ptr, count, most)?;
        self.check(ptr, count)?;
        Ok(values)
    }

    /// Bytes of the caller.
    #[inline]
    pub(crate) fn bytes(&self, slice: Slice) -> Result<&'c [u8], Fault> {
        let most = isize::MAX.unsigned_abs();
        let bytes = self.caller.values(slice.ptr, slice.len, most)?;
        self.check(slice.ptr, slice.len)?;
        Ok(bytes)
    }

    /// Checks that memory which the call uses in another way does not overlap the output either.
    #[inline]
    pub(crate) fn check<T>(&self, ptr: *const T, count: usize) -> Result<(), Fault> {
        let start = ptr.addr();
        let end = start.wrapping_add(count.wrapping_mul(size_of::<T>()));
        let both = start < end && self.start < self.end;
        if both && start < self.end && self.start < end {
            return Err(Fault::new(
                ErrorCode::BadOption,
                "memory to be written overlaps memory to be read",
            ));
        }
        Ok(())
    }
}

/// The output of a call. A call has only one, so that its slice is the only reference to the
/// memory.
pub(crate) struct Output<'c, T> {
    out: *mut T,
    capacity: usize,
    _call: PhantomData<&'c mut T>,
}

impl<'c, T> Output<'c, T> {
    /// The number of values that fit.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// The memory of the values, which may be uninitialised.
    #[inline]
    pub(crate) fn into_slots(self) -> &'c mut [MaybeUninit<T>] {
        if self.capacity == 0 {
            return &mut [];
        }
        // SAFETY: `output` checked that the pointer is not NULL, aligned and not too large. The
        // caller of `new` promised that the memory is writable. No other reference of the call
        // overlaps it: `NonOverlapping` compared the memory that is read, and this value was
        // consumed.
        unsafe { std::slice::from_raw_parts_mut(self.out.cast(), self.capacity) }
    }
}

impl<'c> Output<'c, u8> {
    /// The bytes.
    #[inline]
    pub(crate) fn into_bytes(self) -> &'c mut [u8] {
        if self.capacity == 0 {
            return &mut [];
        }
        // SAFETY: as in `into_slots`; any content is valid for bytes.
        unsafe { std::slice::from_raw_parts_mut(self.out, self.capacity) }
    }
}

/// A structure with all bytes zero, padding included.
pub(crate) fn zeroed<T: Plain>() -> T {
    // SAFETY: all bytes zero is a value of a `Plain` type.
    unsafe { std::mem::zeroed() }
}

/// An empty vector with capacity for `bytes`, if there is memory for them.
pub(crate) fn memory(bytes: usize) -> Result<Vec<u8>, Fail> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).map_err(|_| no_memory())?;
    Ok(memory)
}

/// `bytes` zeros, if there is memory for them. The memory is not touched before it is written.
pub(crate) fn zeros(bytes: usize) -> Result<Vec<u8>, Fail> {
    let layout = Layout::array::<u8>(bytes).map_err(|_| no_memory())?;
    if bytes == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the layout has a size that is not 0.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    if memory.is_null() {
        return Err(no_memory());
    }
    // SAFETY: the memory is from the global allocator, with this layout, and all its bytes are
    // initialised.
    let bytes = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, bytes)) };
    Ok(bytes.into_vec())
}

fn no_memory() -> Fail {
    Fail::new(
        ErrorCode::BadLength,
        "there is not enough memory".to_owned(),
    )
}

/// Bytes of the caller that are borrowed beyond the call.
pub(crate) struct BorrowedBytes {
    ptr: *const u8,
    len: usize,
}

impl BorrowedBytes {
    /// Checks and borrows the bytes.
    pub(crate) fn new(caller: &Caller, slice: Slice) -> Result<Self, Fail> {
        caller.page(slice)?;
        Ok(Self {
            ptr: slice.ptr,
            len: slice.len,
        })
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `new` checked the pointer. The caller keeps the bytes in place until the loan is
        // returned, which happens when this value is dropped. If the caller changes them and so
        // violates the contract, the engine reads other bytes than before, but each of its reads is
        // bounded by `len` again.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }
}

// SAFETY: the memory does not change while it is lent, and the header permits reads and the return
// on any thread.
unsafe impl Send for BorrowedBytes {}
// SAFETY: as for `Send`; the only access is reading.
unsafe impl Sync for BorrowedBytes {}

/// The callback that returns a loan.
#[derive(Clone, Copy)]
pub(crate) struct Callback {
    release: raw::Release,
    user: *mut c_void,
}

impl Callback {
    /// The callback of the caller.
    pub(crate) const fn new(release: raw::Release, user: *mut c_void) -> Self {
        Self { release, user }
    }

    /// Calls the callback.
    pub(crate) fn call(self, borrowed: &BorrowedBytes) {
        (self.release)(self.user, borrowed.ptr, borrowed.len);
    }
}

// SAFETY: the header permits the callback on any thread; the pointer is only passed back.
unsafe impl Send for Callback {}
// SAFETY: as for `Send`.
unsafe impl Sync for Callback {}

/// Spans of a page, which point into memory that the page keeps alive.
#[derive(Debug)]
pub(crate) struct PinnedSpans<T>(Vec<T>);

impl<T: Copy> PinnedSpans<T> {
    pub(crate) const fn new(spans: Vec<T>) -> Self {
        Self(spans)
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        &self.0
    }
}

impl<T> Default for PinnedSpans<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

// SAFETY: this crate never dereferences the pointers; they are numbers for the caller. The memory
// that they point to is immutable, and the page keeps it alive.
unsafe impl<T> Send for PinnedSpans<T> {}
// SAFETY: as for `Send`; the only access is reading.
unsafe impl<T> Sync for PinnedSpans<T> {}

/// Memory of the library that the caller fills. Its address is stable, and the library does not
/// read it before the caller returns it.
pub(crate) struct Fillable {
    memory: Option<Vec<u8>>,
    ptr: *mut u8,
    len: usize,
}

impl Fillable {
    /// Wraps memory of zeros.
    pub(crate) fn new(mut memory: Vec<u8>) -> Self {
        let (ptr, len) = (memory.as_mut_ptr(), memory.len());
        Self {
            memory: Some(memory),
            ptr,
            len,
        }
    }

    /// The address of the memory, and its size.
    pub(crate) const fn as_raw_parts(&self) -> (*mut u8, usize) {
        (self.ptr, self.len)
    }

    /// The memory, after the caller has filled it.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.memory.take()
    }

    /// Undoes [`take`](Self::take).
    pub(crate) fn put_back(&mut self, memory: Vec<u8>) {
        self.memory = Some(memory);
    }
}

// SAFETY: the pointer is only passed to the caller, who uses the buffer from one thread at a time.
unsafe impl Send for Fillable {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A structure whose first version had no field `added`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(C)]
    struct Grown {
        struct_size: u32,
        first: u32,
        added: u64,
    }
    /// The first version of [`Grown`].
    #[derive(Clone, Copy)]
    #[repr(C, align(8))]
    struct Older {
        struct_size: u32,
        first: u32,
    }
    // SAFETY: `repr(C)`, of integers.
    unsafe impl Plain for Grown {}
    // SAFETY: the first field is `struct_size: u32`, and 8 is at most the size of the type.
    unsafe impl Sized32 for Grown {
        const FIRST_BYTES: usize = 8;
    }

    const fn grown(struct_size: u32, first: u32, added: u64) -> Grown {
        Grown {
            struct_size,
            first,
            added,
        }
    }

    #[test]
    fn an_older_structure_is_read_and_written_within_its_size() {
        // SAFETY: each pointer below points to a value of this test.
        let c = unsafe { Caller::new() };
        let info = grown(0, 1, 2);
        for (size, read, written) in [
            (8, grown(8, 5, 0), grown(8, 1, 7)),
            (16, grown(16, 5, 7), grown(16, 1, 2)),
        ] {
            let mut value = grown(size, 5, 7);
            let found = c.options(&raw const value);
            assert!(found.is_ok_and(|found| found == read), "{size}");
            assert!(c.write_info(&raw mut value, &info).is_ok(), "{size}");
            assert_eq!(value, written);
        }

        let mut short = grown(7, 5, 7);
        let found = c.options(&raw const short);
        assert!(found.is_err_and(|fail| fail.number() == number(ErrorCode::BadStruct)));
        let found = c.write_info(&raw mut short, &info);
        assert!(found.is_err_and(|fail| fail.number() == number(ErrorCode::BadStruct)));
        assert_eq!(short, grown(7, 5, 7));
    }

    #[test]
    fn an_array_of_older_structures_has_their_step() {
        // SAFETY: each pointer below points to a value of this test.
        let c = unsafe { Caller::new() };
        let older = [5, 6].map(|first| Older {
            struct_size: 8,
            first,
        });
        let found = c.stepped(older.as_ptr().cast::<Grown>(), older.len(), older.len());
        let expected = older.map(|older| grown(older.struct_size, older.first, 0));
        assert!(found.is_ok_and(|found| found == expected));
    }
}
