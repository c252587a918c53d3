//! References of claims: `contender@workload:metric`, where workload and metric are optional.

/// A parsed reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Name of the contender.
    pub contender: String,
    /// Name of the workload; `None` means the workload of the claim.
    pub workload: Option<String>,
    /// Name of the metric.
    pub metric: String,
}

impl Reference {
    /// Parses `text`; `metric` is the default metric.
    pub fn parse(text: &str, metric: &str) -> Reference {
        let (rest, metric) = text.rsplit_once(':').unwrap_or((text, metric));
        let (contender, workload) = match rest.split_once('@') {
            Some((contender, workload)) => (contender, Some(workload.to_owned())),
            None => (rest, None),
        };
        Reference {
            contender: contender.to_owned(),
            workload,
            metric: metric.to_owned(),
        }
    }
}

/// Whether `name` matches `pattern`, in which `*` stands for any text.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((front, rest)) => name.strip_prefix(front).is_some_and(|name| {
            (0..=name.len())
                .filter_map(|at| name.get(at..))
                .any(|tail| matches(rest, tail))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_may_be_left_out() {
        let whole = Reference::parse("ours@chat:cpu", "wall");
        assert_eq!(whole.workload.as_deref(), Some("chat"));
        assert_eq!(
            (whole.contender.as_str(), whole.metric.as_str()),
            ("ours", "cpu")
        );
        let short = Reference::parse("ours", "wall");
        assert_eq!((short.workload, short.metric.as_str()), (None, "wall"));
    }

    #[test]
    fn stars_match_any_text() {
        for (pattern, name, expect) in [
            ("binary-*", "binary-7000", true),
            ("*", "", true),
            ("*-c", "chat-c", true),
            ("a*b*c", "aXXbYc", true),
            ("a*b", "aXc", false),
            ("chat", "chat-c", false),
        ] {
            assert_eq!(matches(pattern, name), expect, "{pattern} {name}");
        }
    }
}
