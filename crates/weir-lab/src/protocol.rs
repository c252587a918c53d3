//! The protocol between the lab and a resident contender.
//!
//! Each message is one line, with fields separated by TAB, over standard input and output of the
//! child. A contender is a program in any language:
//!
//! | the lab sends | the contender answers |
//! |---|---|
//! | (start) | `hello` `1` `profile=optimised` `name=value` ... |
//! | `load` K `name=value` ... | `ok` |
//! | `check` K | `answer` HASH TOUCH ALLOCATIONS BYTES |
//! | `run` K N | `time` WALL CPU TOUCH `name=value` ... |
//! | `quit` | (ends) |
//!
//! K is the number of an input, and N a number of iterations. WALL and CPU are nanoseconds of the
//! measured part of all N iterations. HASH (of the content, 16 hex digits) must be equal among the
//! contenders of an answer group. TOUCH (hex) is the wrapping sum over the data that one iteration
//! read; the answer to `run` has N times this sum. A contender that cannot execute a line answers
//! `error` and a sentence. End of input means `quit`.
//!
//! Invariant: no value contains TAB or LF.

use std::collections::BTreeMap;

/// Version in the greeting; other versions are refused.
pub const VERSION: &str = "1";
/// Maximum length of a line in either direction, in bytes.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Named values of a message, in a stable order.
pub type Fields = BTreeMap<String, String>;

/// The greeting of a contender.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Hello {
    /// `optimised`, or the actual build profile.
    pub profile: String,
    /// Versions of compiler and libraries by name.
    pub versions: Fields,
}

/// Answer to `check`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Answer {
    /// Hash of the logical content.
    pub content: u64,
    /// Sum of what one iteration touches.
    pub touch: u64,
    /// Heap allocations of one iteration that is not the first.
    pub allocations: u64,
    /// Bytes of these allocations.
    pub allocated_bytes: u64,
}

/// Answer to `run`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timed {
    /// Wall nanoseconds of the measured part.
    pub wall_ns: u64,
    /// CPU nanoseconds of the measured part, all threads.
    pub cpu_ns: u64,
    /// Wrapping sum over the iterations.
    pub touch: u64,
    /// Other metrics, as totals over the iterations.
    pub extra: BTreeMap<String, f64>,
}

/// A line from the lab.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Prepare input K.
    Load(usize, Fields),
    /// Execute input K once, and return its answer.
    Check(usize),
    /// Execute input K for a number of iterations, and return the time.
    Run(usize, u64),
    /// End.
    Quit,
}

/// Why a line was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed line: {0:?}")]
pub struct Malformed(pub String);

impl Request {
    /// The line, without its LF.
    pub fn render(&self) -> String {
        match self {
            Request::Load(input, fields) => format!("load\t{input}{}", render_fields(fields)),
            Request::Check(input) => format!("check\t{input}"),
            Request::Run(input, n) => format!("run\t{input}\t{n}"),
            Request::Quit => "quit".to_owned(),
        }
    }

    /// Parses a line.
    pub fn parse(line: &str) -> Result<Request, Malformed> {
        let bad = || Malformed(line.to_owned());
        let mut words = line.split('\t');
        let verb = words.next().ok_or_else(bad)?;
        if verb == "quit" {
            return Ok(Request::Quit);
        }
        let input = words
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or_else(bad)?;
        match verb {
            "load" => Ok(Request::Load(input, parse_fields(words).ok_or_else(bad)?)),
            "check" => Ok(Request::Check(input)),
            "run" => {
                let n = words
                    .next()
                    .and_then(|word| word.parse().ok())
                    .ok_or_else(bad)?;
                Ok(Request::Run(input, n))
            }
            _ => Err(bad()),
        }
    }
}

impl Hello {
    /// The line, without its LF.
    pub fn render(&self) -> String {
        format!(
            "hello\t{VERSION}\tprofile={}{}",
            self.profile,
            render_fields(&self.versions)
        )
    }

    /// Parses a line.
    pub fn parse(line: &str) -> Result<Hello, Malformed> {
        let bad = || Malformed(line.to_owned());
        let mut words = line.split('\t');
        if words.next() != Some("hello") || words.next() != Some(VERSION) {
            return Err(bad());
        }
        let mut versions = parse_fields(words).ok_or_else(bad)?;
        let profile = versions.remove("profile").ok_or_else(bad)?;
        Ok(Hello { profile, versions })
    }
}

impl Answer {
    /// The line, without its LF.
    pub fn render(&self) -> String {
        format!(
            "answer\t{:016x}\t{:x}\t{}\t{}",
            self.content, self.touch, self.allocations, self.allocated_bytes
        )
    }

    /// Parses a line.
    pub fn parse(line: &str) -> Result<Answer, Malformed> {
        let words: Vec<&str> = line.split('\t').collect();
        let ["answer", content, touch, allocations, bytes] = words.as_slice() else {
            return Err(Malformed(line.to_owned()));
        };
        let read = || {
            Some(Answer {
                content: u64::from_str_radix(content, 16).ok()?,
                touch: u64::from_str_radix(touch, 16).ok()?,
                allocations: allocations.parse().ok()?,
                allocated_bytes: bytes.parse().ok()?,
            })
        };
        read().ok_or_else(|| Malformed(line.to_owned()))
    }
}

impl Timed {
    /// Adds the times of another run.
    pub fn add(&mut self, other: Timed) {
        self.wall_ns += other.wall_ns;
        self.cpu_ns += other.cpu_ns;
        self.touch = self.touch.wrapping_add(other.touch);
        for (name, value) in other.extra {
            *self.extra.entry(name).or_default() += value;
        }
    }

    /// The line, without its LF.
    pub fn render(&self) -> String {
        let extra = self
            .extra
            .iter()
            .map(|(k, v)| (k.clone(), v.to_string()))
            .collect();
        format!(
            "time\t{}\t{}\t{:x}{}",
            self.wall_ns,
            self.cpu_ns,
            self.touch,
            render_fields(&extra)
        )
    }

    /// Parses a line.
    pub fn parse(line: &str) -> Result<Timed, Malformed> {
        let read = || {
            let mut words = line.split('\t');
            if words.next() != Some("time") {
                return None;
            }
            let wall_ns = words.next()?.parse().ok()?;
            let cpu_ns = words.next()?.parse().ok()?;
            let touch = u64::from_str_radix(words.next()?, 16).ok()?;
            let mut extra = BTreeMap::new();
            for (name, value) in parse_fields(words)? {
                let value: f64 = value.parse().ok()?;
                if !value.is_finite() {
                    return None;
                }
                extra.insert(name, value);
            }
            Some(Timed {
                wall_ns,
                cpu_ns,
                touch,
                extra,
            })
        };
        read().ok_or_else(|| Malformed(line.to_owned()))
    }
}

fn render_fields(fields: &Fields) -> String {
    fields.iter().fold(String::new(), |line, (name, value)| {
        format!("{line}\t{name}={value}")
    })
}

fn parse_fields<'a>(words: impl Iterator<Item = &'a str>) -> Option<Fields> {
    words
        .map(|word| {
            word.split_once('=')
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_they_were() {
        let fields = Fields::from([("file".into(), "a b=c".into()), ("n".into(), "7".into())]);
        for request in [
            Request::Load(3, fields),
            Request::Check(0),
            Request::Run(12, 99),
            Request::Quit,
        ] {
            assert_eq!(Request::parse(&request.render()), Ok(request));
        }
        let timed = Timed {
            wall_ns: 5,
            cpu_ns: 6,
            touch: u64::MAX,
            extra: BTreeMap::from([("syncs".into(), 12.0)]),
        };
        assert_eq!(Timed::parse(&timed.render()), Ok(timed));
        let answer = Answer {
            content: 1,
            touch: 2,
            allocations: 3,
            allocated_bytes: 4,
        };
        assert_eq!(Answer::parse(&answer.render()), Ok(answer));
        let hello = Hello {
            profile: "optimised".into(),
            versions: Fields::from([("libxml2".into(), "2.9.14".into())]),
        };
        assert_eq!(Hello::parse(&hello.render()), Ok(hello));
    }

    #[test]
    fn broken_lines_are_refused() {
        for line in ["", "run\t1", "run\tx\t1", "load\t1\tnoequals", "dance\t1"] {
            assert!(Request::parse(line).is_err(), "{line:?}");
        }
        for line in [
            "time\t1\t2",
            "time\t1\t2\tzz",
            "time\t1\t2\t3\tsyncs=NaN",
            "answer\t1\t2\t3",
        ] {
            assert!(
                Timed::parse(line).is_err() && Answer::parse(line).is_err(),
                "{line:?}"
            );
        }
        assert!(Hello::parse("hello\t2\tprofile=optimised").is_err());
    }
}
