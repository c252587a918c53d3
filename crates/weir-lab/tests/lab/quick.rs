//! The quick form, the peers that a run builds, and the site of a user.

use super::*;

/// Bytes of all files of a result set, as text.
fn stored(set: &Path) -> String {
    let files = fs::read_dir(set)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.is_file());
    files.map(|path| text(&fs::read(path).unwrap())).collect()
}

#[test]
fn a_quick_run_leaves_out_what_its_time_does_not_allow() {
    let dir = laboratory(&experiment(1.5, ""));
    let words = ["run", "t", "--allow-debug", "--quick", "--budget", "0ms"];
    let out = run(dir.path(), &words);
    let report = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    for words in [
        "LEFT OUT: the last 1 of 2 cells",
        "A quick run had time for the first 1 of 2 cells.",
        "Quick run: it shows that everything works",
    ] {
        assert!(report.contains(words), "{words} not in {report}");
    }
    assert!(row(&report, "block 1 of 3 done").ends_with("about 0 s left of 0 s"));
    let set = result_set(dir.path());
    assert_eq!(samples_of(&set, 0).len(), 1, "one round");
    assert!(!set.join("blocks/B001.jsonl").exists());
    // The resumed run measures the same cells, in as many rounds as there is time for.
    let rest = ["run", "--allow-debug", "--budget", "1h", "--resume"];
    let out = run(dir.path(), &[&rest[..], &[set.to_str().unwrap()]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(samples_of(&set, 2).len(), 3);
}

#[test]
fn the_quick_forms_of_all_experiments_take_less_than_ten_minutes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/experiments");
    let files = fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let limits = files.map(|file| {
        let experiment = weir_lab::experiment::Experiment::read(&file.path()).unwrap();
        let is_quick = |w: &weir_lab::experiment::WorkloadSpec| w.quick && !w.site;
        assert!(experiment.workloads.iter().any(is_quick), "{file:?}");
        experiment.header.quick_s
    });
    let sum: u64 = limits.sum();
    // The last minute is for starting programs, and for blocks that end late.
    assert!(sum <= 540, "{sum} s");
}

#[test]
fn all_runs_every_experiment_and_goes_on_after_a_failure() {
    let dir = laboratory(&processes("hello", "hello").replace("/bin/echo", "/bin/false"));
    let other = dir.path().join("lab/experiments/u.toml");
    fs::write(other, processes("hello", "hello")).unwrap();
    let out = run(dir.path(), &["run", "all", "--quick"]);
    let stdout = text(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{stdout}");
    assert!(row(&stdout, "[1 of 2]").ends_with("t.toml"), "{stdout}");
    assert!(stdout.contains("t.toml: contender `one`"), "{stdout}");
    assert!(row(&stdout, "2 experiments in ").ends_with(" s"));
    result_set(dir.path());
}

#[test]
fn a_run_builds_the_peers_that_are_missing() {
    let dir = tempfile::tempdir().unwrap();
    script(dir.path(), "source", "");
    let install = r#"cd "$(dirname "$0")/../.."
echo "built $*" >> built
[ -e broken ] && exit 1
mkdir -p target/lab-peers
{ echo '#!/bin/sh'; cat source; } > target/lab-peers/made
chmod +x target/lab-peers/made
"#;
    let made = "[[contender]]\nname = \"made\"\ncommand = [\"{peers}/made\"]\nanswers = \"all\"\n";
    let header = "pin = \"none\"\npeers = [\"libraries\", \"json\"]";
    let text_of = experiment(1.5, made).replacen("pin = \"none\"", header, 1);
    for (name, content) in [
        ("lab/peers/install.sh", install),
        ("lab/experiments/t.toml", text_of.as_str()),
        ("broken", ""),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let words = ["run", "t", "--allow-debug", "--quick"];
    let only = [&words[..], &["--only", "quick,slow"]].concat();
    assert_eq!(run(dir.path(), &only).status.code(), Some(0));
    assert!(!dir.path().join("built").exists(), "it is not needed");
    // The others are measured if a peer cannot be built.
    let out = run(dir.path(), &words);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("some peers could not be built"));
    assert!(text(&out.stderr).contains("made failed"));
    fs::remove_file(dir.path().join("broken")).unwrap();
    for _ in 0..2 {
        let out = run(dir.path(), &words);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    }
    let built = fs::read_to_string(dir.path().join("built")).unwrap();
    assert_eq!(built, "built libraries json\nbuilt libraries json\n");
}

#[test]
fn a_site_is_read_by_its_workloads_alone_and_its_address_is_not_stored() {
    let address = "http://host.example/my/notes";
    let dir = tempfile::tempdir().unwrap();
    let faults = format!(
        r"case $word$fields in check*site={address}*) ;; check*) answer='error\tno site' ;; esac"
    );
    let reader = script(dir.path(), "reader", &faults);
    let site = "[[workload]]\nname = \"yours\"\nsite = true\n";
    let path = dir.path().join("lab/experiments/t.toml");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, experiment(1.5, &(reader + site))).unwrap();
    let words = ["run", "t", "--allow-debug", "--quick", "--site"];
    let out = run(dir.path(), &[&words[..], &[address]].concat());
    let report = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(report.contains(" --quick --site URL`"), "{report}");
    let figures = report.split("## Figures").nth(1).unwrap();
    assert!(
        figures.contains("| yours ") && !figures.contains("| w "),
        "{figures}"
    );
    let set = result_set(dir.path());
    assert!(!stored(&set).contains("host.example"));
    let refused = run(dir.path(), &["run", "--resume", set.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--site"));
    for wrong in ["host.example", "http://a b"] {
        let refused = run(dir.path(), &[&words[..], &[wrong]].concat());
        assert_eq!(refused.status.code(), Some(2), "{wrong}");
    }
    let dir = laboratory(&experiment(1.5, ""));
    let refused = run(dir.path(), &[&words[..], &[address]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("no workload of `t` reads a site"));
}

#[test]
fn a_second_run_waits_for_the_first() {
    let dir = laboratory(&experiment(1.5, ""));
    fs::create_dir(dir.path().join("target")).unwrap();
    let lock = fs::File::create(dir.path().join("target/lab-scratch.lock")).unwrap();
    lock.lock().unwrap();
    let mut command = lab(dir.path(), &["run", "t", "--allow-debug", "--quick"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("waiting for another run"), "{line}");
    lock.unlock().unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_full_disk_ends_a_run_that_can_be_resumed() {
    let dir = laboratory(&experiment(1.5, "").replace("samples = 3", "samples = 10000"));
    // Limits files to 850 units of 512 or 1,024 bytes, which the samples of a block exceed. A write
    // fails, because the signal is ignored.
    let limited = "trap '' XFSZ; ulimit -f 850; exec \"$0\" run t --allow-debug --blocks 1";
    let out = Command::new("/bin/sh")
        .current_dir(dir.path())
        .args(["-c", limited, env!("CARGO_BIN_EXE_weir-lab")])
        .output()
        .unwrap();
    let message = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{message}");
    assert!(message.contains("B000"), "{message}");
    let set = result_set(dir.path());
    let stored = fs::read_dir(set.join("blocks")).unwrap().count();
    assert_eq!(stored, 0, "a part of a block was left");
    let words = ["run", "--allow-debug", "--resume", set.to_str().unwrap()];
    let out = run(dir.path(), &words);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(samples_of(&set, 0).len(), 20_000);
}
