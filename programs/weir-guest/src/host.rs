//! The functions of the store (`weir1`), each with a safe wrapper.
//!
//! The host checks every pointer. The pointers here always come from slices, so they are
//! valid.

#[cfg(target_arch = "wasm32")]
#[link(wasm_import_module = "weir1")]
unsafe extern "C" {
    #[link_name = "input_info"]
    fn weir_input_info(ptr: *mut u8);
    #[link_name = "input_read"]
    fn weir_input_read(what: u32, off: usize, ptr: *mut u8, cap: usize) -> usize;
    #[link_name = "emit_put"]
    fn weir_emit_put(kptr: *const u8, klen: usize, vptr: *const u8, vlen: usize);
    #[link_name = "emit_delete"]
    fn weir_emit_delete(kptr: *const u8, klen: usize);
    #[link_name = "emit_input"]
    fn weir_emit_input();
    #[link_name = "emit_value"]
    fn weir_emit_value(kptr: *const u8, klen: usize, voff: usize, vlen: usize);
    #[link_name = "reject_text"]
    fn weir_reject_text(ptr: *const u8, len: usize);
    #[link_name = "state_get"]
    fn weir_state_get(k: *const u8, klen: usize, off: usize, ptr: *mut u8, cap: usize) -> i32;
    #[link_name = "state_put"]
    fn weir_state_put(kptr: *const u8, klen: usize, vptr: *const u8, vlen: usize);
    #[link_name = "state_delete"]
    fn weir_state_delete(kptr: *const u8, klen: usize);
    #[link_name = "state_next"]
    fn weir_state_next(kptr: *const u8, klen: usize, ptr: *mut u8, cap: usize) -> i32;
    #[link_name = "key_get"]
    fn weir_key_get(k: *const u8, klen: usize, off: usize, ptr: *mut u8, cap: usize) -> i32;
    #[link_name = "key_offset"]
    fn weir_key_offset(kptr: *const u8, klen: usize) -> i64;
    #[link_name = "hash"]
    fn weir_hash(alg: u32, ptr: *const u8, len: usize, out: *mut u8);
    #[link_name = "json_find"]
    fn weir_json_find(what: u32, flags: u32, p: *const u8, plen: usize, out: *mut u8) -> i32;
    #[link_name = "log"]
    fn weir_log(level: u32, ptr: *const u8, len: usize);
}

/// Replaces the host on other targets, so that the crate can be checked and documented on any
/// machine.
#[cfg(not(target_arch = "wasm32"))]
macro_rules! nowhere {
    ($($name:ident($($arg:ident: $kind:ty),*) $(-> $ret:ty)?;)*) => {$(
        unsafe fn $name($($arg: $kind),*) $(-> $ret)? {
            $(let _ = $arg;)*
            panic!("a program runs in a topic only")
        }
    )*};
}
#[cfg(not(target_arch = "wasm32"))]
nowhere! {
    weir_input_info(ptr: *mut u8);
    weir_input_read(what: u32, off: usize, ptr: *mut u8, cap: usize) -> usize;
    weir_emit_put(kptr: *const u8, klen: usize, vptr: *const u8, vlen: usize);
    weir_emit_delete(kptr: *const u8, klen: usize);
    weir_emit_input();
    weir_emit_value(kptr: *const u8, klen: usize, voff: usize, vlen: usize);
    weir_reject_text(ptr: *const u8, len: usize);
    weir_state_get(k: *const u8, klen: usize, off: usize, ptr: *mut u8, cap: usize) -> i32;
    weir_state_put(kptr: *const u8, klen: usize, vptr: *const u8, vlen: usize);
    weir_state_delete(kptr: *const u8, klen: usize);
    weir_state_next(kptr: *const u8, klen: usize, ptr: *mut u8, cap: usize) -> i32;
    weir_key_get(k: *const u8, klen: usize, off: usize, ptr: *mut u8, cap: usize) -> i32;
    weir_key_offset(kptr: *const u8, klen: usize) -> i64;
    weir_hash(alg: u32, ptr: *const u8, len: usize, out: *mut u8);
    weir_json_find(what: u32, flags: u32, p: *const u8, plen: usize, out: *mut u8) -> i32;
    weir_log(level: u32, ptr: *const u8, len: usize);
}

/// The copied part of a value from byte `from` on, and the full length of the value; `None` for
/// -1.
fn handed(into: &mut [u8], from: usize, len: i32) -> Option<(&[u8], usize)> {
    let len = usize::try_from(len).ok()?;
    let there = len.saturating_sub(from).min(into.len());
    Some((&into[..there], len))
}

pub(crate) fn input_info() -> [u8; 128] {
    let mut header = [0; 128];
    // SAFETY: the pointer is that of an array of the size the host writes.
    unsafe { weir_input_info(header.as_mut_ptr()) };
    header
}

pub(crate) fn input(what: u32, off: usize, into: &mut [u8]) -> &[u8] {
    // SAFETY: pointer and length are those of a slice.
    let len = unsafe { weir_input_read(what, off, into.as_mut_ptr(), into.len()) };
    &into[..len.min(into.len())]
}

pub(crate) fn emit_put(key: &[u8], value: &[u8]) {
    // SAFETY: pointers and lengths are those of slices.
    unsafe { weir_emit_put(key.as_ptr(), key.len(), value.as_ptr(), value.len()) };
}

pub(crate) fn emit_delete(key: &[u8]) {
    // SAFETY: pointer and length are those of a slice.
    unsafe { weir_emit_delete(key.as_ptr(), key.len()) };
}

pub(crate) fn emit_input() {
    // SAFETY: no pointers.
    unsafe { weir_emit_input() };
}

pub(crate) fn emit_value(key: &[u8], from: usize, len: usize) {
    // SAFETY: pointer and length are those of a slice; the rest is numbers.
    unsafe { weir_emit_value(key.as_ptr(), key.len(), from, len) };
}

pub(crate) fn reject_text(text: &[u8]) {
    // SAFETY: pointer and length are those of a slice.
    unsafe { weir_reject_text(text.as_ptr(), text.len()) };
}

pub(crate) fn state_get<'a>(
    key: &[u8],
    from: usize,
    into: &'a mut [u8],
) -> Option<(&'a [u8], usize)> {
    let (ptr, cap) = (into.as_mut_ptr(), into.len());
    // SAFETY: pointers and lengths are those of slices.
    let len = unsafe { weir_state_get(key.as_ptr(), key.len(), from, ptr, cap) };
    handed(into, from, len)
}

pub(crate) fn state_put(key: &[u8], value: &[u8]) {
    // SAFETY: pointers and lengths are those of slices.
    unsafe { weir_state_put(key.as_ptr(), key.len(), value.as_ptr(), value.len()) };
}

pub(crate) fn state_delete(key: &[u8]) {
    // SAFETY: pointer and length are those of a slice.
    unsafe { weir_state_delete(key.as_ptr(), key.len()) };
}

pub(crate) fn state_next<'a>(key: &[u8], into: &'a mut [u8]) -> Option<(&'a [u8], usize)> {
    let (ptr, cap) = (into.as_mut_ptr(), into.len());
    // SAFETY: pointers and lengths are those of slices.
    let len = unsafe { weir_state_next(key.as_ptr(), key.len(), ptr, cap) };
    handed(into, 0, len)
}

pub(crate) fn key_get<'a>(
    key: &[u8],
    from: usize,
    into: &'a mut [u8],
) -> Option<(&'a [u8], usize)> {
    let (ptr, cap) = (into.as_mut_ptr(), into.len());
    // SAFETY: pointers and lengths are those of slices.
    let len = unsafe { weir_key_get(key.as_ptr(), key.len(), from, ptr, cap) };
    handed(into, from, len)
}

pub(crate) fn key_offset(key: &[u8]) -> u64 {
    // SAFETY: pointer and length are those of a slice.
    let offset = unsafe { weir_key_offset(key.as_ptr(), key.len()) };
    offset.cast_unsigned()
}

pub(crate) fn hash(alg: u32, bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    // SAFETY: pointer and length are those of a slice, `out` has 32 bytes.
    unsafe { weir_hash(alg, bytes.as_ptr(), bytes.len(), out.as_mut_ptr()) };
    out
}

/// `out` must have an element for each line of `paths`; otherwise the host is not called.
pub(crate) fn json_find(what: u32, flags: u32, paths: &[u8], out: &mut [[u8; 12]]) -> i32 {
    if paths.iter().filter(|&&byte| byte == b'\n').count() + 1 > out.len() {
        return -2;
    }
    let out = out.as_mut_ptr().cast();
    // SAFETY: pointer and length are those of a slice, `out` has 12 bytes for
    // each path.
    unsafe { weir_json_find(what, flags, paths.as_ptr(), paths.len(), out) }
}

pub(crate) fn log(level: u32, text: &[u8]) {
    // SAFETY: pointer and length are those of a slice.
    unsafe { weir_log(level, text.as_ptr(), text.len()) };
}
