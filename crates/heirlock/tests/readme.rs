//! What the README shows is what runs.
#![allow(missing_docs)]

#[test]
fn the_readmes_examples_are_those_that_are_built() {
    let readme = include_str!("../../../README.md");
    let shown: Vec<&str> = readme.split("```rust\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    let built = [include_str!("../examples/nightly.rs"), include_str!("../examples/alarm.rs"), include_str!("../examples/pool.rs")];
    assert_eq!(shown, built.map(|example| example.split_once("\n\n").unwrap().1));
}
