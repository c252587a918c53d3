//! Only one process at a time can open a directory; tested with a second process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use weir_store::error::{Retry, StoreError};
use weir_store::lock::DirLock;

/// Not a test by itself: the body of the second process that a test below starts.
#[test]
fn holder() {
    let Ok(directory) = std::env::var("WEIR_TEST_LOCK_DIRECTORY") else {
        return;
    };
    let _lock = DirLock::acquire(directory.as_ref(), "the holder").unwrap();
    // Writes to the descriptor directly, because the test harness captures `println`.
    writeln!(std::io::stderr(), "LOCKED").unwrap();
    std::io::stdin().lines().next();
}

#[test]
fn a_second_process_gets_the_holder_of_the_directory_until_the_holder_ends() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "log_lock::holder",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("WEIR_TEST_LOCK_DIRECTORY", directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    while lines.next().unwrap().unwrap() != "LOCKED" {}
    let refused = DirLock::acquire(directory.path(), "second");
    child.kill().unwrap();
    child.wait().unwrap();
    match refused {
        Err(error @ StoreError::Locked { .. }) => {
            assert_eq!(error.retry(), Retry::Later);
            let StoreError::Locked {
                pid,
                program,
                started_unix_s,
                ..
            } = &error
            else {
                unreachable!()
            };
            assert_eq!((*pid, program.as_str()), (child.id(), "the holder"));
            assert!(*started_unix_s > 1_600_000_000);
            assert!(error.to_string().contains(&child.id().to_string()));
        }
        other => panic!("{other:?}"),
    }
    drop(DirLock::acquire(directory.path(), "second").unwrap());
}

#[test]
fn a_second_handle_in_one_process_is_refused_and_a_drop_releases_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let first = DirLock::acquire(directory.path(), "first\nline").unwrap();
    match DirLock::acquire(directory.path(), "second") {
        Err(StoreError::Locked { pid, program, .. }) => {
            assert_eq!((pid, program.as_str()), (std::process::id(), "firstline"));
        }
        other => panic!("{other:?}"),
    }
    drop(first);
    drop(DirLock::acquire(directory.path(), "second").unwrap());
    // The lock file remains: after its removal, two processes could lock two files.
    assert!(directory.path().join("LOCK").exists());
}
