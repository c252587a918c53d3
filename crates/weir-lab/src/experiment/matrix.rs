//! The expanded matrix: every contender with every workload it takes part in.
//!
//! Invariant: cells are numbered densely in file order (contender by
//! contender within a workload), and the numbers do not depend on `--only`,
//! so that stored samples keep their meaning.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{ContenderSpec, Experiment, Items, WorkloadSpec};
use crate::error::{LabError, Result};
use crate::inputs::{self, chat_session};
use crate::protocol::Fields;

/// Suffix of the name of a twin.
pub const TWIN: &str = "~twin";
/// Maximum number of cells of an experiment.
pub const CELLS_MAX: usize = 4_096;

/// A workload with its size filled in.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name.
    pub name: String,
    /// Units of work in one iteration.
    pub items: u64,
    /// Samples of its cells in each block; `None` means those of the experiment.
    pub samples: Option<usize>,
    /// Input file by syntax.
    pub files: BTreeMap<String, PathBuf>,
    /// Parameters.
    pub params: Fields,
}

/// One contender with one workload.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Index into [`Matrix::contenders`].
    pub contender: usize,
    /// Index into [`Matrix::workloads`].
    pub workload: usize,
}

/// All contenders, workloads and cells of a run.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Contenders in file order; a twin is last.
    pub contenders: Vec<ContenderSpec>,
    /// Workloads in file order, each with its sizes in order.
    pub workloads: Vec<Workload>,
    /// Cells in file order.
    pub cells: Vec<Cell>,
    /// Combinations left out, with the reason.
    pub skipped: Vec<(String, String, String)>,
    /// Contenders that are left out because their program is missing.
    pub absent: Vec<Absent>,
}

/// A contender whose program is missing.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Absent {
    /// Its name.
    pub contender: String,
    /// What its program needs to be built.
    pub needs: String,
}

/// The selected part of a matrix.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Contenders to run; empty means all.
    pub only: Vec<String>,
    /// Leaves workloads and contenders with `quick = false` out.
    pub quick: bool,
    /// Runs the workloads with `site = true` instead of the others.
    pub site: bool,
    /// Directory of the peers. If the program of a contender with `needs` is missing there, the
    /// contender is left out, unless it was named explicitly.
    pub peers: PathBuf,
}

impl Absent {
    /// A sentence for the user.
    pub fn line(&self) -> String {
        format!(
            "LEFT OUT: {}, because its program is missing (lab/peers/install.sh builds it; it needs {})",
            self.contender, self.needs
        )
    }
}

impl Selection {
    /// The workloads to run, each with its sizes.
    fn workloads(
        &self,
        experiment: &Experiment,
        root: &Path,
        generated: &Path,
    ) -> Result<Vec<Workload>> {
        let name = &experiment.header.name;
        let all = &experiment.workloads;
        if self.site && !all.iter().any(|spec| spec.site) {
            return Err(LabError::Usage {
                what: format!("no workload of `{name}` reads a site; leave --site out"),
            });
        }
        let mut workloads = Vec::new();
        for spec in all {
            if spec.site == self.site && (spec.quick || !self.quick) {
                expand_workload(name, spec, root, generated, &mut workloads)?;
            }
        }
        Ok(workloads)
    }

    /// Why a contender is left out: a program of its command is missing.
    fn missing(&self, contender: &ContenderSpec) -> Option<Absent> {
        let needs = contender.needs.clone()?;
        let is_missing = contender.missing_program(&self.peers).is_some();
        let is_named = self.only.contains(&contender.name);
        (is_missing && !is_named).then(|| Absent {
            contender: contender.name.clone(),
            needs,
        })
    }
}

impl Matrix {
    /// Expands `experiment`. Files are below `root`; generated inputs are written to `generated` if
    /// they do not exist there.
    pub fn expand(
        experiment: &Experiment,
        root: &Path,
        generated: &Path,
        selection: &Selection,
    ) -> Result<Matrix> {
        let name = &experiment.header.name;
        let mut contenders = experiment.contenders.clone();
        if let Some(twin) = &experiment.header.twin {
            let first = contenders.iter().find(|c| c.name == *twin).cloned();
            contenders.extend(first.map(|c| ContenderSpec {
                name: format!("{twin}{TWIN}"),
                ..c
            }));
        }
        for wanted in &selection.only {
            if !contenders.iter().any(|contender| contender.name == *wanted) {
                return Err(LabError::Usage {
                    what: format!("no contender `{wanted}` in {name}"),
                });
            }
        }
        if !selection.only.is_empty() {
            contenders.retain(|contender| {
                let plain = contender.name.strip_suffix(TWIN).unwrap_or(&contender.name);
                selection
                    .only
                    .iter()
                    .any(|wanted| wanted == &contender.name || wanted == plain)
            });
        } else if selection.quick {
            contenders.retain(|contender| contender.quick);
        }
        let mut absent = Vec::new();
        contenders.retain(|contender| {
            let missing = selection.missing(contender);
            absent.extend(missing.clone());
            missing.is_none()
        });
        let workloads = selection.workloads(experiment, root, generated)?;
        let mut matrix = Matrix {
            contenders,
            workloads,
            cells: Vec::new(),
            skipped: Vec::new(),
            absent,
        };
        matrix.fill(experiment);
        if matrix.cells.is_empty() || matrix.cells.len() > CELLS_MAX {
            let what = format!(
                "{} cells; 1 to {CELLS_MAX} are possible",
                matrix.cells.len()
            );
            return Err(LabError::experiment(name, what));
        }
        Ok(matrix)
    }

    fn fill(&mut self, experiment: &Experiment) {
        for (w, workload) in self.workloads.iter().enumerate() {
            for (c, contender) in self.contenders.iter().enumerate() {
                let has_file = workload.files.is_empty()
                    || contender
                        .syntax
                        .as_ref()
                        .is_some_and(|syntax| workload.files.contains_key(syntax));
                if !contender.takes_part(&workload.name) || !has_file {
                    continue;
                }
                match experiment.skip_of(&contender.name, &workload.name) {
                    Some(skip) => self.skipped.push((
                        contender.name.clone(),
                        workload.name.clone(),
                        skip.reason.clone(),
                    )),
                    None => self.cells.push(Cell {
                        contender: c,
                        workload: w,
                    }),
                }
            }
        }
    }

    /// Contender of a cell.
    pub fn contender(&self, cell: &Cell) -> &ContenderSpec {
        &self.contenders[cell.contender]
    }

    /// Workload of a cell.
    pub fn workload(&self, cell: &Cell) -> &Workload {
        &self.workloads[cell.workload]
    }

    /// The cell of a contender with a workload, by name.
    pub fn find(&self, contender: &str, workload: &str) -> Option<usize> {
        self.cells.iter().position(|cell| {
            self.contender(cell).name == contender && self.workload(cell).name == workload
        })
    }

    /// The input of the contender of `cell`.
    pub fn fields(&self, cell: &Cell) -> Fields {
        let contender = self.contender(cell);
        let workload = self.workload(cell);
        let mut fields = workload.params.clone();
        for (name, value) in &contender.params {
            fields.insert(name.clone(), plain(value));
        }
        if let Some(file) = contender
            .syntax
            .as_ref()
            .and_then(|s| workload.files.get(s))
        {
            fields.insert("file".to_owned(), file.display().to_string());
        }
        fields
    }
}

/// A parameter in the form of the protocol: strings without quotes.
fn plain(value: &toml::Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn expand_workload(
    experiment: &str,
    spec: &WorkloadSpec,
    root: &Path,
    generated: &Path,
    into: &mut Vec<Workload>,
) -> Result<()> {
    let sizes: Vec<Option<u64>> = if spec.sizes.is_empty() {
        vec![None]
    } else {
        spec.sizes.iter().map(|s| Some(*s)).collect()
    };
    for size in sizes {
        let fill = |text: &str| match size {
            Some(size) => text.replace("{size}", &size.to_string()),
            None => text.to_owned(),
        };
        let items = match (&spec.items, size) {
            (Items::Count(count), _) if *count > 0 => *count,
            (Items::Named(name), Some(size)) if name == "size" => size,
            _ => {
                let what = format!(
                    "workload `{}`: items is a number above 0, or \"size\" with sizes",
                    spec.name
                );
                return Err(LabError::experiment(experiment, what));
            }
        };
        let files = match (spec.generate.as_deref(), size) {
            (None, _) => spec
                .files
                .iter()
                .map(|(s, f)| (s.clone(), root.join(fill(f))))
                .collect(),
            (Some("binary-packet"), Some(size)) => inputs::binary_packets(generated, size)?,
            (Some("chat-session"), Some(size)) => chat_session::files(generated, size)?,
            (Some("jpeg-packet"), None) => inputs::jpeg_packets(generated, root)?,
            (Some(other), _) => {
                let what = format!(
                    "workload `{}`: cannot generate `{other}`; possible are `binary-packet` and `chat-session` with sizes, and `jpeg-packet` without sizes",
                    spec.name
                );
                return Err(LabError::experiment(experiment, what));
            }
        };
        let mut params: Fields = spec
            .params
            .iter()
            .map(|(name, value)| (name.clone(), fill(&plain(value))))
            .collect();
        if let Some(size) = size {
            params.insert("size".to_owned(), size.to_string());
        }
        into.push(Workload {
            name: fill(&spec.name),
            items,
            samples: spec.samples,
            files,
            params,
        });
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn expand(text: &str, selection: &Selection) -> Matrix {
        let experiment = Experiment::parse(text, Path::new("t.toml")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        Matrix::expand(&experiment, Path::new("/r"), dir.path(), selection).unwrap()
    }

    const TEXT: &str = r#"
[experiment]
name = "t"
title = "t"
question = "?"
mode = "inproc"
twin = "a"
[[contender]]
name = "a"
builtin = "spin"
syntax = "x"
[[contender]]
name = "b"
builtin = "spin"
syntax = "y"
params = { units = 3 }
[[workload]]
name = "file"
files = { x = "one.x" }
[[workload]]
name = "n{size}"
sizes = [10, 20]
items = "size"
params = { units = 5, label = "s{size}" }
[[skip]]
contender = "b"
workload = "n20"
reason = "too slow"
"#;

    #[test]
    fn cells_follow_from_sizes_twins_and_skips() {
        let matrix = expand(TEXT, &Selection::default());
        let names: Vec<String> = matrix
            .cells
            .iter()
            .map(|cell| {
                format!(
                    "{}/{}",
                    matrix.contender(cell).name,
                    matrix.workload(cell).name
                )
            })
            .collect();
        assert_eq!(
            names,
            [
                "a/file",
                "a~twin/file",
                "a/n10",
                "b/n10",
                "a~twin/n10",
                "a/n20",
                "a~twin/n20"
            ]
        );
        assert_eq!(matrix.skipped.len(), 1);
        let cell = &matrix.cells[matrix.find("b", "n10").unwrap()];
        let fields = matrix.fields(cell);
        assert_eq!(fields["units"], "3");
        assert_eq!(fields["label"], "s10");
        assert_eq!(matrix.workload(cell).items, 10);
        let file = &matrix.cells[matrix.find("a", "file").unwrap()];
        assert_eq!(matrix.fields(file)["file"], "/r/one.x");
    }

    #[test]
    fn a_site_and_the_quick_form_choose_workloads_and_contenders() {
        let text = TEXT
            .replace(
                "params = { units = 3 }",
                "params = { units = 3 }\nquick = false",
            )
            .replace("name = \"file\"", "name = \"file\"\nsite = true");
        let cells = |selection: &Selection| {
            let matrix = expand(&text, selection);
            let named = matrix.cells.iter().map(|cell| {
                let (contender, workload) = (matrix.contender(cell), matrix.workload(cell));
                format!("{}/{}", contender.name, workload.name)
            });
            named.collect::<Vec<_>>()
        };
        let quick = Selection {
            quick: true,
            ..Selection::default()
        };
        assert_eq!(
            cells(&quick),
            ["a/n10", "a~twin/n10", "a/n20", "a~twin/n20"]
        );
        let site = Selection {
            site: true,
            ..Selection::default()
        };
        assert_eq!(cells(&site), ["a/file", "a~twin/file"]);
        // A contender that is named explicitly runs in the quick form, too.
        let named = Selection {
            only: vec!["b".into()],
            quick: true,
            ..Selection::default()
        };
        assert_eq!(cells(&named), ["b/n10"]);
    }

    #[test]
    fn a_contender_is_absent_if_any_program_of_its_command_is_missing() {
        let other = "builtin = \"spin\"\nsyntax = \"y\"";
        assert!(TEXT.contains(other));
        let command = "command = [\"/bin/sh\", \"{peers}/server\"]\nneeds = \"a compiler\"";
        let text = TEXT.replace(other, command);
        let peers = tempfile::tempdir().unwrap();
        let selection = Selection {
            peers: peers.path().to_owned(),
            ..Selection::default()
        };
        let absent = expand(&text, &selection).absent;
        assert_eq!(absent[0].contender, "b");
        std::fs::write(peers.path().join("server"), "").unwrap();
        assert!(expand(&text, &selection).absent.is_empty());
    }

    #[test]
    fn only_keeps_the_named_contenders() {
        let matrix = expand(
            TEXT,
            &Selection {
                only: vec!["b".into()],
                ..Selection::default()
            },
        );
        assert_eq!(matrix.cells.len(), 1);
    }
}
