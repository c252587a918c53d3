//! Opening a store whose process was killed.
//!
//! A child process creates the image: it puts the messages, receives every answer, and aborts
//! without closing. Each iteration opens a fresh copy of the image; only the open is timed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weir::{Durability, OpenOptions, Weir};

use super::put::fresh;
use super::{Load, TOPIC, durability, failed, no_key, options, put_all, remove, scratch};
use crate::clock::Stopwatch;
use crate::contender::{Contender, ContenderError, parameter};
use crate::protocol::{Answer, Fields, Timed};

/// Opens images of killed stores. Reports `file_bytes` of the image.
#[derive(Debug, Default)]
pub struct Open {
    inputs: BTreeMap<usize, Image>,
}

#[derive(Debug)]
struct Image {
    load: Load,
    fields: Fields,
    path: PathBuf,
    exists: bool,
}

/// Duration and result of one open.
struct Opened {
    wall_ns: u64,
    cpu_ns: u64,
    records: u64,
    file_bytes: u64,
}

impl Image {
    fn image(&self) -> PathBuf {
        self.path.with_extension("image")
    }

    /// Creates the image once.
    fn create(&mut self) -> Result<(), ContenderError> {
        if self.exists {
            return Ok(());
        }
        let image = self.image();
        remove(&image)?;
        let lab = std::env::current_exe().map_err(failed)?;
        let mut fields = self.fields.clone();
        fields.insert("store".to_owned(), image.display().to_string());
        let words = fields.iter().map(|(name, value)| format!("{name}={value}"));
        let ended = Command::new(lab)
            .args(["once", "weir-crash"])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(failed)?;
        if ended.code().is_some() {
            return Err(failed("the child that creates the image did not abort"));
        }
        self.exists = true;
        Ok(())
    }

    fn open(&mut self) -> Result<Opened, ContenderError> {
        self.create()?;
        remove(&self.path)?;
        let file_bytes = copy(&self.image(), &self.path).map_err(failed)?;
        let watch = Stopwatch::start();
        let weir = Weir::open_with(&self.path, &options(Durability::Group)).map_err(failed)?;
        let (wall_ns, cpu_ns) = watch.stop();
        let info = weir.topic(TOPIC).map_err(failed)?.info();
        let records = info.map_or(0, |info| info.last.0);
        weir.close().map_err(failed)?;
        remove(&self.path)?;
        Ok(Opened {
            wall_ns,
            cpu_ns,
            records,
            file_bytes,
        })
    }
}

/// Copies a directory tree. Returns the copied bytes.
fn copy(from: &Path, to: &Path) -> std::io::Result<u64> {
    fs::create_dir_all(to)?;
    let mut bytes = 0;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        bytes += if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?
        } else {
            fs::copy(entry.path(), target)?
        };
    }
    Ok(bytes)
}

impl Contender for Open {
    fn load(&mut self, input: usize, fields: &Fields) -> Result<(), ContenderError> {
        let path = scratch(fields, "open", input)?;
        let load = Load::read(fields)?;
        self.inputs.insert(
            input,
            Image {
                load,
                fields: fields.clone(),
                path,
                exists: false,
            },
        );
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let image = self
            .inputs
            .get_mut(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let records = image.open()?.records;
        // One record is the CREATE of the topic.
        if records != image.load.messages + 1 {
            let what = format!(
                "{records} records after {} acknowledged puts",
                image.load.messages
            );
            return Err(failed(what));
        }
        Ok(Answer {
            content: records,
            touch: records,
            ..Answer::default()
        })
    }

    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    fn run(&mut self, input: usize, iterations: u64) -> Result<Timed, ContenderError> {
        let image = self
            .inputs
            .get_mut(&input)
            .ok_or(ContenderError::NotLoaded(input))?;
        let mut sum = Timed::default();
        for _ in 0..iterations {
            let opened = image.open()?;
            sum.wall_ns += opened.wall_ns;
            sum.cpu_ns += opened.cpu_ns;
            sum.touch = sum.touch.wrapping_add(opened.records);
            *sum.extra.entry("file_bytes".to_owned()).or_default() += opened.file_bytes as f64;
        }
        Ok(sum)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        for image in self.inputs.values() {
            let _ = remove(&image.path);
            let _ = remove(&image.image());
        }
    }
}

/// Puts a load into the directory `store` and ends the process without closing the store. No
/// snapshot is written meanwhile.
#[derive(Debug, Default)]
pub struct Crash {
    input: Option<(Load, Durability, PathBuf)>,
}

impl Contender for Crash {
    fn load(&mut self, _input: usize, fields: &Fields) -> Result<(), ContenderError> {
        self.input = Some((
            Load::read(fields)?,
            durability(fields)?,
            parameter(fields, "store")?,
        ));
        Ok(())
    }

    fn check(&mut self, input: usize) -> Result<Answer, ContenderError> {
        let (load, durability, path) = self
            .input
            .as_ref()
            .ok_or(ContenderError::NotLoaded(input))?;
        fresh(path, *durability)?.close().map_err(failed)?;
        let unlimited = OpenOptions {
            snapshot_log_bytes: u64::MAX,
            ..options(*durability)
        };
        let weir = Weir::open_with(path, &unlimited).map_err(failed)?;
        put_all(&weir, *load, no_key)?;
        std::process::abort()
    }

    fn run(&mut self, input: usize, _iterations: u64) -> Result<Timed, ContenderError> {
        self.check(input)?;
        Ok(Timed::default())
    }
}
