//! `heirlock completions`, `heirlock man`, `--verbose`, colours, and output that cannot be written as it comes.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use common::{Place, eventually, stderr};

fn shown(place: &Place, args: &[&str]) -> String {
    let output = place.output(args);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs, as `--help` lists them.
fn verbs(place: &Place) -> Vec<String> {
    let help = shown(place, &["--help"]);
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    commands.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).filter(|verb| verb != "help").collect()
}

/// The long options of a verb, as its `--help` lists them.
fn options(place: &Place, verb: &str) -> Vec<String> {
    let help = shown(place, &[verb, "--help"]);
    let words = help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2);
    let mut options: Vec<String> =
        words.map(|word| word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()).filter(|word| word.len() > 2).collect();
    options.sort();
    options.dedup();
    options
}

#[test]
fn bash_takes_its_completions_and_completes() {
    let place = Place::new();
    let script = shown(&place, &["completions", "bash"]);
    let mut check = Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let checked = check.wait_with_output().unwrap();
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
    let file = place.path("heirlock.bash");
    std::fs::write(&file, &script).unwrap();
    let complete = |words: &str| {
        let all: Vec<&str> = words.split(' ').collect();
        let last = all.len() - 1;
        let ask = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={last}; _heirlock heirlock {} {}; echo \"${{COMPREPLY[@]}}\"",
            file.display(),
            all[last],
            all[last - 1]
        );
        let output = Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete("heirlock ev").trim(), "evict");
    assert_eq!(complete("heirlock evict --fo").trim(), "--force");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(shown(&place, &["completions", shell]).contains("heirlock"), "{shell}");
    }
    assert_eq!(place.code(&["completions", "cmd"]), 125);
}

#[test]
fn the_manual_has_every_verb_and_every_option() {
    let place = Place::new();
    let all = shown(&place, &["man"]).replace('\\', "");
    let folder = place.path("man/man1");
    assert_eq!(shown(&place, &["man", "--dir", folder.to_str().unwrap()]), "");
    let verbs = verbs(&place);
    assert!(verbs.len() >= 8, "{verbs:?}");
    for verb in verbs {
        let page = std::fs::read_to_string(folder.join(format!("heirlock-{verb}.1"))).unwrap();
        assert!(page.contains(&format!(".TH heirlock-{verb} 1")), "{page}");
        let page = page.replace('\\', "");
        assert!(all.contains(&page), "{verb} is not on stdout");
        for option in options(&place, &verb) {
            assert!(page.contains(&option), "{option} of {verb} is not in {page}");
        }
    }
    let page = std::fs::read_to_string(folder.join("heirlock.1")).unwrap();
    assert!(page.contains("heirlock\\-run(1)") && page.contains("Exit codes"), "{page}");
    // A directory that cannot be made is one line.
    std::fs::write(place.path("file"), "").unwrap();
    let bad = place.output(&["man", "--dir", place.path("file/below").to_str().unwrap()]);
    assert!(bad.status.code() == Some(125) && stderr(&bad).lines().count() == 1, "{bad:?}");
}

#[test]
fn what_is_decided_is_said_if_asked_for() {
    let place = Place::new();
    let quiet = place.output(&["run", "a", "true"]);
    assert_eq!(stderr(&quiet), "");
    for args in [&["-v", "run", "a", "true"][..], &["run", "-v", "a", "true"]] {
        let output = place.output(args);
        let told = stderr(&output);
        assert!(output.status.success(), "{told}");
        for words in ["which store", "HEIRLOCK_STORE says so", "is reached", "is held", "fence="] {
            assert!(told.contains(words), "{words:?} is not in {told}");
        }
        assert!(!told.contains('\x1b'), "{told}");
    }
    assert!(stderr(&place.output(&["-v", "show", "a"])).contains("which store"));
    // After the name it is the command's.
    let output = place.output(&["run", "a", "echo", "-v"]);
    assert_eq!((output.stdout.as_slice(), stderr(&output).as_str()), (&b"-v\n"[..], ""));
}

/// What is printed on a terminal of its own, with these variables.
fn on_terminal(place: &Place, args: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("exec {} {args}", env!("CARGO_BIN_EXE_heirlock")), "/dev/null"]);
    command.env("HEIRLOCK_STORE", place.store()).env("TERM", "xterm").env_remove("NO_COLOR").stdin(Stdio::null());
    command.envs(variables.iter().copied());
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let place = Place::new();
    let holder = place.holder("nightly");
    for args in ["ls", "show nightly", "doctor"] {
        let coloured = on_terminal(&place, args, &[]);
        assert!(coloured.contains("\x1b[1m"), "{args}: {coloured:?}");
        assert!(on_terminal(&place, args, &[("NO_COLOR", "")]).contains("\x1b[1m"), "{args}: an empty NO_COLOR says nothing");
        for plain in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let text = on_terminal(&place, args, &[plain]);
            assert!(
                !text.contains('\x1b') && (text.contains("nightly") || text.contains("sqlite:") || text.contains("WHO")),
                "{args}, {plain:?}: {text:?}"
            );
        }
        assert!(!shown(&place, &args.split(' ').collect::<Vec<_>>()).contains('\x1b'), "{args}");
    }
    // Without its colours the text is the same.
    let bare = on_terminal(&place, "where", &[]);
    assert_eq!(bare.replace("\r\n", "\n"), shown(&place, &["where"]));
    drop(holder);
}

#[test]
fn every_verb_tells_of_a_stdout_that_is_full_and_not_of_one_that_is_closed() {
    let place = Place::new();
    let holder = place.holder("a");
    let verbs = [
        &["show", "a"][..],
        &["show", "a", "--json"],
        &["where"],
        &["where", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["evict", "b"],
        &["evict", "b", "--json"],
        &["completions", "bash"],
        &["man"],
    ];
    for words in verbs {
        common::assert_tells_a_stdout_that_fails(&place, words);
    }
    drop(holder);
}

/// A pipe that is full is waited for, also by who was given one that does not wait.
#[test]
fn a_full_pipe_gets_all_in_the_end() {
    let place = Place::new();
    let whole = shown(&place, &["man"]);
    for waits in [true, false] {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let room = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
        assert!(whole.len() > 2 * room, "{} bytes are too few", whole.len());
        if !waits {
            rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
        }
        let mut child = place.heirlock(&["man"]).stdout(writer).spawn().unwrap();
        eventually("the pipe is full", || rustix::io::ioctl_fionread(&reader).unwrap() >= u64::try_from(room).unwrap());
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!((child.wait().unwrap().code(), text == whole), (Some(0), true), "waits: {waits}");
    }
}
