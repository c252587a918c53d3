//! Reader of the text vectors in `vectors/psyc`.

use std::path::PathBuf;

/// One case: the text after `==`, the settings, and the expected lines.
#[derive(Debug)]
pub struct Case {
    pub title: String,
    settings: Vec<(String, String)>,
    pub expected: Vec<String>,
}

impl Case {
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The bytes of the setting with the name `name`.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let text = self.setting(name)?;
        Some(weir_psyc::unescape(text.as_bytes()).expect("escapes"))
    }

    /// The bytes of every setting with the name `name`, in order.
    pub fn all(&self, name: &str) -> Vec<Vec<u8>> {
        let settings = self.settings.iter().filter(|(key, _)| key == name);
        settings
            .map(|(_, text)| weir_psyc::unescape(text.as_bytes()).expect("escapes"))
            .collect()
    }

    /// Compares lines of TAB-separated fields with the expected lines.
    pub fn check(&self, printed: &str, how: &str) {
        let shown: Vec<String> = printed
            .lines()
            .map(|line| {
                line.split('\t')
                    .collect::<Vec<_>>()
                    .join(" ␉ ")
                    .trim_end()
                    .to_string()
            })
            .collect();
        assert_eq!(shown, self.expected, "{} ({how})", self.title);
    }
}

pub fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/psyc"))
}

/// Reads the cases of a file. `settings` are the first words of setting lines.
pub fn read(file: &str, settings: &[&str]) -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join(file)).expect("vector file");
    assert!(text.starts_with("# "), "{file} says what it shows");
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("== ") {
            let title = format!("{file}: {title}");
            cases.push(Case {
                title,
                settings: Vec::new(),
                expected: Vec::new(),
            });
            continue;
        }
        let Some(case) = cases.last_mut() else {
            assert!(line.is_empty() || line.starts_with('#'), "{file}: {line}");
            continue;
        };
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if settings.contains(&word) {
            case.settings.push((word.to_string(), rest.to_string()));
        } else if !line.is_empty() {
            case.expected.push(line.trim_end().to_string());
        }
    }
    assert!(!cases.is_empty());
    cases
}
