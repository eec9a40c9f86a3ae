//! What the README shows is what runs.
#![allow(missing_docs)]

#[test]
fn the_readmes_example_is_the_one_that_is_built() {
    let readme = include_str!("../../../README.md");
    let example = include_str!("../examples/nightly.rs");
    let shown = readme.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    let built = example.split_once("\n\n").unwrap().1;
    assert_eq!(shown, built);
}
