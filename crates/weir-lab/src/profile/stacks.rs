//! Reads the stacks that `perf script` prints, folds them, and classifies each.

use std::collections::BTreeMap;

/// Class of a sample without a classified frame, whose innermost frame has no name.
pub(super) const UNKNOWN: &str = "unknown";
/// Class of a sample without a classified frame, whose innermost frame is in the kernel.
const KERNEL: &str = "other kernel";
/// Class of all other samples without a classified frame.
const OTHER: &str = "other functions";
/// The text that `perf` prints instead of an unknown name.
pub(super) const NAMELESS: &str = "[unknown]";
/// Maximum number of frames; a longer stack is cut at its root.
const FRAMES_MAX: usize = 256;

/// Classes by parts of function names; the first matching rule counts.
const RULES: &[(&str, &[&str])] = &[
    ("epoll_ctl", &["epoll_ctl"]),
    ("epoll_wait", &["epoll_wait", "ep_poll", "epoll_pwait"]),
    ("accept", &["inet_csk_accept", "sys_accept"]),
    (
        "send",
        &["tcp_sendmsg", "sock_write_iter", "sys_send", "sys_write"],
    ),
    (
        "receive",
        &["tcp_recvmsg", "sock_read_iter", "sys_recv", "sys_read"],
    ),
    ("close", &["sys_close", "tcp_close"]),
    ("futex", &["futex"]),
    ("sync", &["fdatasync", "fsync"]),
    (
        "memory of the kernel",
        &[
            "page_fault",
            "sys_mmap",
            "sys_munmap",
            "sys_brk",
            "sys_madvise",
        ],
    ),
    (
        "allocator",
        &[
            "malloc",
            "realloc",
            "calloc",
            "cfree",
            "_int_free",
            "__rdl_",
            "__rust_dealloc",
        ],
    ),
    ("copying", &["memcpy", "memmove", "memset"]),
    (
        "zlib",
        &["deflate", "inflate", "zlib_rs", "adler32", "crc32"],
    ),
    ("JSON", &["serde_json", "json"]),
    (
        "HTTP library",
        &["hyper::", "httparse", "http::", "MHD_", "weir_server"],
    ),
    ("runtime", &["tokio", "mio::", "runtime."]),
    ("handler", &["bench", "sieve"]),
];

/// A process with its samples, and their number in each class, largest first.
pub(super) type Share = (String, u64, Vec<(&'static str, u64)>);

/// Number of samples of each stack, outermost frame first. The process is the outermost frame.
#[derive(Debug, Default)]
pub(super) struct Stacks(BTreeMap<Vec<String>, u64>);

/// Class of one frame.
fn rule(frame: &str) -> Option<&'static str> {
    let has = |(_, parts): &&(&str, &[&str])| parts.iter().any(|part| frame.contains(part));
    RULES.iter().find(has).map(|(class, _)| *class)
}

/// Class of a stack: that of its innermost classified frame.
pub(super) fn class(stack: &[String]) -> &'static str {
    let frames = stack.get(1..).unwrap_or_default();
    let found = frames.iter().rev().find_map(|frame| rule(frame));
    found.unwrap_or_else(|| match frames.last() {
        Some(frame) if frame.ends_with(KERNEL_MARK) => KERNEL,
        Some(frame) if frame != NAMELESS => OTHER,
        _ => UNKNOWN,
    })
}

/// Suffix of the names of kernel frames.
const KERNEL_MARK: &str = "_[k]";

impl Stacks {
    /// Reads the output of `perf script -F comm,ip,sym`: a line with the process, lines with the
    /// frames, innermost first, and an empty line.
    pub(super) fn read(text: &str) -> Stacks {
        let mut stacks = Stacks::default();
        for sample in text.split("\n\n") {
            let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
            let Some(process) = lines.next() else {
                continue;
            };
            let mut stack: Vec<String> = lines.take(FRAMES_MAX).filter_map(frame).collect();
            stack.push(plain(process.trim()));
            stack.reverse();
            *stacks.0.entry(stack).or_default() += 1;
        }
        stacks
    }

    /// Adds a sample, outermost frame first; the first is the process.
    pub(super) fn add(&mut self, stack: &[String]) {
        let stack = stack.iter().map(|name| plain(name)).collect();
        *self.0.entry(stack).or_default() += 1;
    }

    /// Number of samples.
    pub(super) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Each stack and its number of samples.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[String], u64)> {
        self.0
            .iter()
            .map(|(stack, count)| (stack.as_slice(), *count))
    }

    /// One line for each stack, with frames separated by `;`, and its number of samples: the input
    /// of other flame graph tools.
    pub(super) fn folded(&self) -> String {
        let line = |(stack, count): (&[String], u64)| format!("{} {count}\n", stack.join(";"));
        self.iter().map(line).collect()
    }

    /// The processes, the one with most samples first.
    pub(super) fn shares(&self) -> Vec<Share> {
        let mut found: BTreeMap<&str, BTreeMap<&'static str, u64>> = BTreeMap::new();
        for (stack, count) in self.iter() {
            let process = stack.first().map_or("", String::as_str);
            *found
                .entry(process)
                .or_default()
                .entry(class(stack))
                .or_default() += count;
        }
        let mut shares: Vec<Share> = found
            .into_iter()
            .map(|(process, classes)| {
                let mut classes: Vec<_> = classes.into_iter().collect();
                classes.sort_by_key(|(class, count)| (std::cmp::Reverse(*count), *class));
                let total = classes.iter().map(|(_, count)| count).sum();
                (process.to_owned(), total, classes)
            })
            .collect();
        shares.sort_by_key(|(_, total, _)| std::cmp::Reverse(*total));
        shares
    }
}

/// The innermost functions of the samples of a process with their numbers, most frequent first.
pub(super) fn innermost(stacks: &Stacks, process: &str) -> Vec<(String, u64)> {
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    for (stack, count) in stacks.iter() {
        if let [first, .., last] = stack
            && first == process
        {
            *found.entry(last).or_default() += count;
        }
    }
    let mut found: Vec<_> = found
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
    found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    found
}

/// `ffffffff81000c82 asm_exc_page_fault` as a name.
fn frame(line: &str) -> Option<String> {
    let (address, name) = line.trim().split_once(' ')?;
    // Kernel addresses are in the upper half.
    let kernel = u64::from_str_radix(address, 16).is_ok_and(|address| address >> 63 == 1);
    let mark = if kernel { KERNEL_MARK } else { "" };
    Some(plain(name.trim()) + mark)
}

/// A name without separator characters.
fn plain(name: &str) -> String {
    name.replace([';', '\n'], ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "server \n\tffffffff81000001 tcp_sendmsg\n\tffffffff81000002 do_syscall_64\n\t    55aa main\n\n\
                          server \n\tffffffff81000003 clear_page\n\t    55aa main\n\n\
                          server \n\tffffffff81000001 tcp_sendmsg\n\tffffffff81000002 do_syscall_64\n\t    55aa main\n\n\
                          client \n\t    55ab [unknown]\n\n\
                          server \n\t    55ac malloc\n\t    55ad hyper::proto\n\n";

    #[test]
    fn samples_are_folded_and_classed_from_inside() {
        let stacks = Stacks::read(SCRIPT);
        assert_eq!(
            stacks.folded(),
            "client;[unknown] 1\n\
             server;hyper::proto;malloc 1\n\
             server;main;clear_page_[k] 1\n\
             server;main;do_syscall_64_[k];tcp_sendmsg_[k] 2\n"
        );
        let shares = stacks.shares();
        assert_eq!(shares.len(), 2);
        assert_eq!(
            shares.first(),
            Some(&(
                "server".to_owned(),
                4,
                vec![("send", 2), ("allocator", 1), (KERNEL, 1)]
            ))
        );
        let ends = innermost(&stacks, "server");
        assert_eq!(ends.first(), Some(&("tcp_sendmsg_[k]".to_owned(), 2)));
        assert_eq!(ends.len(), 3);
        assert_eq!(
            shares.last(),
            Some(&("client".to_owned(), 1, vec![(UNKNOWN, 1)]))
        );
    }

    #[test]
    fn a_function_with_a_name_is_not_unknown() {
        let stacks = Stacks::read("own \n\t    55aa apply\n\t    55ab [unknown]\n\n");
        let shares = stacks.shares();
        assert_eq!(
            shares.first(),
            Some(&("own".to_owned(), 1, vec![(OTHER, 1)]))
        );
    }

    #[test]
    fn text_that_is_none_gives_no_samples() {
        assert_eq!(Stacks::read("").total(), 0);
        assert_eq!(Stacks::read("\n\n\n\n").total(), 0);
    }
}
