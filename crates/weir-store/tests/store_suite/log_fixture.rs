//! The bytes of format 1 never change.
//!
//! Writes a small log with a fixed salt and compares the checksum of each file with that of
//! the first version of the format. With `WEIR_WRITE_FIXTURE=DIR`, the log is also written
//! to that directory, as a fixture that later versions must open.

use std::path::Path;
use std::sync::Arc;

use crate::log_sim::{ID, options};
use weir_store::disk::{Disk, FileDisk, SimDisk};
use weir_store::log::{Log, LogIndex};

/// Writes a log with every kind of batch and file: masked and unmasked entries, a seal,
/// truncations, rolls, a purge, a repair, a cut file, a clean mark. Afterwards the log has
/// the entries 6 to 24.
fn write(disk: &Arc<dyn Disk>) {
    let open = || Log::open(Arc::clone(disk), ID, options()).unwrap().0;
    let mut log = open();
    for index in 1..=20_u64 {
        let bytes = vec![u8::try_from(index).unwrap(); usize::try_from(index * 150).unwrap()];
        log.append(1, 1, &[&bytes]).unwrap();
    }
    log.sync().unwrap();
    log.seal().unwrap();
    log.truncate_after(LogIndex(18)).unwrap();
    log.append(2, 3, &[b"the second ", b"nineteenth"]).unwrap();
    // A single bit in the last sector requires a mask.
    let mut sparse = vec![7; 384];
    sparse.push(0x20);
    log.append(2, 1, &[&sparse]).unwrap();
    log.append(2, 0, &[]).unwrap();
    log.sync().unwrap();
    log.purge_through(LogIndex(5)).unwrap();
    // The process dies. Then a header sector after the end is missing.
    drop(log);
    let mut log = open();
    log.append(3, 1, &[&[0; 2000]]).unwrap();
    log.append(3, 1, &[b"22 and 23 are written, 24 is torn"])
        .unwrap();
    log.sync().unwrap();
    drop(log);
    let path = newest(disk);
    let file = disk.open(&path, weir_store::disk::OpenMode::Write).unwrap();
    file.write_all_at(
        &mut [std::io::IoSlice::new(&[0xEE; 512])],
        file.len().unwrap() - 4096,
    )
    .unwrap();
    let mut log = open();
    log.append(3, 1, &[b"24"]).unwrap();
    log.close().unwrap();
}

fn newest(disk: &Arc<dyn Disk>) -> String {
    let names = disk.list("log").unwrap();
    let name = names
        .iter()
        .filter(|name| name.contains(".log"))
        .max()
        .unwrap();
    format!("log/{name}")
}

#[test]
fn the_bytes_of_format_1_do_not_change() {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    write(&disk);
    let found: Vec<(String, usize, u32)> = sim
        .files()
        .into_iter()
        .map(|file| {
            let content = sim.content(&file).unwrap();
            (file, content.len(), crc_fast::crc32_iscsi(&content))
        })
        .collect();
    let expected = [
        (
            "cut/00000000000000000005-00000000000000009728.cut",
            19968,
            0x576C_0A98,
        ),
        ("log/00000000000000000001.log", 16384, 0x7567_6925),
        ("log/00000000000000000010.log", 16384, 0xEF79_5A98),
        ("log/00000000000000000015.log", 32768, 0xE639_6BD4),
        ("log/00000000000000000024.log", 8704, 0xB922_5400),
        ("log/00000000000000000027.log", 6656, 0x4403_302E),
        ("log/00000000000000000031.log", 32768, 0x333D_9C47),
        ("log/start", 1024, 0xC0D5_BA9C),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(f, l, c)| ((*f).to_owned(), *l, *c))
        .collect();
    assert_eq!(found, expected);
    let (log, recovery) = Log::open(disk, ID, options()).unwrap();
    assert!(recovery.clean);
    assert_eq!((log.first_index().0, log.last_index().0), (6, 24));
}

#[test]
fn the_fixture_is_the_same_on_a_real_directory() {
    let temporary = tempfile::tempdir().unwrap();
    let wanted = std::env::var("WEIR_WRITE_FIXTURE");
    let path = wanted.as_deref().map_or(temporary.path(), Path::new);
    let real: Arc<dyn Disk> = Arc::new(FileDisk::open(path).unwrap());
    write(&real);
    let sim = SimDisk::new();
    let simulated: Arc<dyn Disk> = Arc::new(sim.clone());
    write(&simulated);
    for file in sim.files() {
        assert!(
            std::fs::read(path.join(&file)).unwrap() == sim.content(&file).unwrap(),
            "{file}"
        );
    }
}
