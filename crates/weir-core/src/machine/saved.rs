//! Programs in a snapshot: two kinds of sections (docs/formats/snapshot.md).

use std::sync::Arc;

use super::programs::Codes;
use super::running::{RunningProgram, setup};
use super::states::States;
use super::topic::Topic;
use crate::call_context::{CallContext, IMAGE_PAGE_BYTES, Image, ImageMemory, OFFSET_BYTES};
use crate::codec::{Reader, Short, put_bytes, put_varint};
use crate::keys::KeyIndex;
use crate::limits::{
    ARGUMENT_BYTES_MAX, GLOBALS_MAX, KEY_BYTES_MAX, MEMORY_BYTES_MAX, PRINCIPAL_BYTES_MAX,
};
use crate::options::TopicOptions;
use crate::program::{CodeHash, ProgramHost, StateMode};
use crate::snapshot::{Input, SnapshotError, Writer};

/// Tag of a topic's section with its program.
pub(super) const PROGRAM: u64 = 50;
/// Tag that marks a topic in quarantine.
pub(super) const STOPPED: u64 = 52;
/// Tag of the offset up to which a topic is trimmed.
pub(super) const TRIMMED: u64 = 61;
/// Tag of the machine's section with all modules.
pub(super) const CODES: u64 = 51;
/// Maximum bytes of a section: two maps of state, and a reserve.
const SECTION_BYTES_MAX: u64 = 2 << 30;

const MALFORMED: SnapshotError = SnapshotError::Malformed("the state of a program");

/// Content of a topic's section, before its module is loaded.
#[derive(Debug)]
pub(super) struct SavedProgram {
    code: CodeHash,
    meter: u32,
    args: Arc<[u8]>,
    owner: Arc<[u8]>,
    context: CallContext,
    tracks_keys: bool,
}

pub(super) fn save(
    running: &RunningProgram,
    index: &KeyIndex,
    out: &mut Writer<'_>,
) -> Result<(), SnapshotError> {
    let mut bytes = running.code.0.to_vec();
    put_varint(&mut bytes, u64::from(running.meter));
    put_bytes(&mut bytes, &running.args);
    put_bytes(&mut bytes, &running.owner);
    let state = running.context.state();
    put_varint(&mut bytes, state.len() as u64);
    for (key, value) in state.iter() {
        put_bytes(&mut bytes, key);
        put_bytes(&mut bytes, value);
    }
    put_varint(&mut bytes, u64::from(running.tracks_keys));
    if let Some(keys) = running.context.keys() {
        // Keys and offsets must equal those of the topic.
        assert_eq!(keys.len(), index.len(), "each key has a kept value");
        for (_, value) in keys.iter() {
            let Some((_, value)) = value.split_at_checked(OFFSET_BYTES) else {
                unreachable!("a kept value begins with its offset")
            };
            put_bytes(&mut bytes, value);
        }
    }
    let image = running.context.image();
    put_varint(&mut bytes, image.memory.len() as u64);
    put_varint(&mut bytes, image.memory.pages().count() as u64);
    for (number, page) in image.memory.pages() {
        put_varint(&mut bytes, number as u64);
        bytes.extend_from_slice(page);
    }
    put_varint(&mut bytes, image.globals.len() as u64);
    for global in &image.globals {
        bytes.extend_from_slice(&global.to_le_bytes());
    }
    out.number(PROGRAM)?;
    out.bytes(&bytes)
}

pub(super) fn load(
    input: &mut Input<'_>,
    options: &TopicOptions,
    index: &KeyIndex,
) -> Result<SavedProgram, SnapshotError> {
    let bytes = input.section(SECTION_BYTES_MAX, "a section of at most 2 GiB")?;
    read(&bytes, options, index).map_err(|Short| MALFORMED)
}

fn read(bytes: &[u8], options: &TopicOptions, index: &KeyIndex) -> Result<SavedProgram, Short> {
    let mut r = Reader::new(bytes);
    let code = CodeHash(r.array()?);
    let meter = u32::try_from(r.varint()?).map_err(|_| Short)?;
    let args: Arc<[u8]> = Arc::from(r.bytes()?);
    let owner: Arc<[u8]> = Arc::from(r.bytes()?);
    if meter == 0 || args.len() > ARGUMENT_BYTES_MAX || owner.len() > PRINCIPAL_BYTES_MAX {
        return Err(Short);
    }
    let mode = options.program.state;
    let mut context = CallContext::new(mode, options.program_limits(), Arc::clone(&args));
    state(&mut r, &mut context)?;
    if mode != StateMode::Kv && !context.state().is_empty() {
        return Err(Short);
    }
    let tracks_keys = match r.varint()? {
        0 => false,
        1 => true,
        _ => return Err(Short),
    };
    context.track_keys(tracks_keys);
    if let Some(keys) = context.keys_mut() {
        for (key, offset) in index.sorted() {
            keys.put(key, [&offset.0.to_le_bytes(), r.bytes()?]);
            keys.commit();
        }
    }
    *context.image_mut() = image(&mut r)?;
    if mode != StateMode::Memory && *context.image() != Image::default() {
        return Err(Short);
    }
    if !r.is_empty() {
        return Err(Short);
    }
    Ok(SavedProgram {
        code,
        meter,
        args,
        owner,
        context,
        tracks_keys,
    })
}

/// The entries of mode `kv`.
fn state(r: &mut Reader<'_>, context: &mut CallContext) -> Result<(), Short> {
    let mut before: &[u8] = &[];
    for _ in 0..r.varint()? {
        let key = r.bytes()?;
        if key <= before || key.len() > KEY_BYTES_MAX {
            return Err(Short);
        }
        let value = r.bytes()?;
        context.state_mut().put(key, [value, &[]]);
        // These entries must never be reverted.
        context.state_mut().commit();
        before = key;
    }
    Ok(())
}

fn image(r: &mut Reader<'_>) -> Result<Image, Short> {
    let bytes = r.varint()?;
    if bytes > MEMORY_BYTES_MAX || !bytes.is_multiple_of(IMAGE_PAGE_BYTES as u64) {
        return Err(Short);
    }
    let mut memory = ImageMemory::zeros(usize::try_from(bytes).map_err(|_| Short)?);
    let mut next = 0;
    for _ in 0..r.varint()? {
        let number = usize::try_from(r.varint()?).map_err(|_| Short)?;
        // Pages must be in ascending order, within the memory, and not all zeros.
        if number < next || !memory.set_page(number, r.take(IMAGE_PAGE_BYTES)?) {
            return Err(Short);
        }
        next = number + 1;
    }
    let mut globals = Vec::new();
    let count = r.length()?;
    if count > GLOBALS_MAX {
        return Err(Short);
    }
    for _ in 0..count {
        globals.push(r.u64()?);
    }
    Ok(Image { memory, globals })
}

pub(super) fn save_codes(codes: &Codes, out: &mut Writer<'_>) -> Result<(), SnapshotError> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, codes.iter().len() as u64);
    for code in codes.iter() {
        put_bytes(&mut bytes, &code.bytes);
    }
    out.number(CODES)?;
    out.bytes(&bytes)
}

pub(super) fn load_codes(
    input: &mut Input<'_>,
    host: &dyn ProgramHost,
) -> Result<Codes, SnapshotError> {
    let bytes = input.section(SECTION_BYTES_MAX, "a section of at most 2 GiB")?;
    let mut codes = Codes::default();
    let mut r = Reader::new(&bytes);
    let mut before = None;
    for _ in 0..r.varint().map_err(|Short| MALFORMED)? {
        let code = r.bytes().map_err(|Short| MALFORMED)?;
        let hash = host.hash(code);
        if before.is_some_and(|before| before >= hash) {
            return Err(SnapshotError::Malformed("modules in order of their hash"));
        }
        before = Some(hash);
        codes.insert(hash, Arc::from(code));
    }
    if r.is_empty() {
        Ok(codes)
    } else {
        Err(MALFORMED)
    }
}

/// Restores the program of a topic.
pub(super) fn restore_program(
    topic: &mut Topic,
    saved: SavedProgram,
    (codes, states): (&mut Codes, &mut States),
    host: &dyn ProgramHost,
) -> Result<(), SnapshotError> {
    let Some(live) = topic.live.as_mut() else {
        return Err(MALFORMED);
    };
    let code = codes.get_mut(saved.code).ok_or(MALFORMED)?;
    let setup = setup(&live.options, live.options.program.state, saved.meter);
    let program = host.restore(&code.bytes, &setup).map_err(|refusal| {
        SnapshotError::Program(match refusal {
            crate::program::Refusal::Bad(text) | crate::program::Refusal::Unable(text) => text,
        })
    })?;
    code.topics += 1;
    let mut context = saved.context;
    context.set_topic(topic.name.as_str());
    let mut running = RunningProgram::new(
        (saved.code, saved.meter),
        saved.args,
        setup.mode,
        program,
        context,
        saved.tracks_keys,
        saved.owner,
    );
    if !running.accepts_image() || (running.reads_keys() && !running.tracks_keys) {
        return Err(MALFORMED);
    }
    running.charged = running.charge_bytes();
    states.add(&running.owner, running.charged);
    live.program = Some(Box::new(running));
    Ok(())
}
