//! Runs the command in a separate directory with a clean environment.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A directory in which commands run.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

/// The result of a command.
pub(crate) struct CommandOutput {
    /// Exit code.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) out: Vec<u8>,
    /// Standard error.
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The command, not started, without the caller's environment.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        let path = std::env::var_os("PATH").unwrap();
        command
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", path);
        command.env("HOME", self.dir.path()).stdin(Stdio::null());
        // Test directories may be in memory.
        command.env("WEIR_SERVE_VOLATILE", "true");
        command
    }

    pub(crate) fn weir(&self) -> Command {
        self.command(env!("CARGO_BIN_EXE_weir"))
    }

    /// Runs a command line; words are separated by blanks.
    pub(crate) fn run(&self, line: &str) -> CommandOutput {
        self.words(&line.split(' ').collect::<Vec<_>>())
    }

    pub(crate) fn words(&self, words: &[&str]) -> CommandOutput {
        command_output(self.weir().args(words).output().unwrap())
    }

    /// Like `run`, with input.
    pub(crate) fn pipe(&self, line: &str, input: impl AsRef<[u8]>) -> CommandOutput {
        let mut command = self.weir();
        command.args(line.split(' ')).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.as_ref().to_vec();
        let writer = std::thread::spawn(move || {
            // The command may end before it has read the input.
            drop(stdin.write_all(&input));
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        command_output(output)
    }
}

pub(crate) fn command_output(output: Output) -> CommandOutput {
    CommandOutput {
        code: output.status.code().unwrap_or(-1),
        out: output.stdout,
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl CommandOutput {
    /// Asserts success.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.code(0)
    }

    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}{}", self.err, self.text());
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Standard output as one JSON document.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.out).expect("one JSON document")
    }

    /// Standard output as JSON, one document a line.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = self.text();
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }
}
