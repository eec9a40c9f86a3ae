//! The demonstration: what it draws is what happened, so each time the same, but for the milliseconds.
#![allow(missing_docs)]

mod common;

use common::Place;

/// Runs of digits before "ms" are `N`.
fn without_times(text: &str) -> String {
    let words = text.split_inclusive(' ').collect::<Vec<_>>();
    let mut out = String::new();
    for (at, word) in words.iter().enumerate() {
        let timed = words.get(at + 1).is_some_and(|next| next.starts_with("ms"));
        out.push_str(if timed && word.trim_end().bytes().all(|byte| byte.is_ascii_digit()) { "N " } else { word });
    }
    out
}

#[test]
fn the_inversion_is_drawn_step_by_step() {
    let place = Place::new();
    let output = place.heirlock(&["demo", "inversion"]).env("LC_ALL", "C.UTF-8").output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let guide = include_str!("../../../README.md");
    let shown = guide.split("$ heirlock demo inversion\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(without_times(&text), without_times(shown));
    // The times are of this machine, but no wait is shorter than the steps that it is for.
    let spans: Vec<u64> = text.lines().filter_map(|line| line.strip_suffix(" ms")?.rsplit(' ').next()?.parse().ok()).collect();
    assert_eq!(spans.len(), 3, "{text}");
    assert!(spans[0] >= 220 && spans[1] >= 40 && spans[2] >= 160, "{text}");
}

#[test]
fn without_utf8_it_is_drawn_in_ascii() {
    let place = Place::new();
    let output = place.heirlock(&["demo", "inversion"]).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success() && output.stdout.is_ascii());
    assert!(String::from_utf8_lossy(&output.stdout).contains("bus  10   ....@@"), "{}", String::from_utf8_lossy(&output.stdout));
}
