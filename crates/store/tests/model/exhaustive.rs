//! The protocol holds in every reachable state, and from each of them the session can come to rest.

use crate::checker::{explore, print_run};
use crate::nodes::{Model, Trouble};
use crate::rules::Rules;
use crate::state::Left;
use std::time::Instant;

/// Looks at every state with so many prompts and so many troubles of any kinds.
fn hold(inputs: u8, troubles: u8) {
    let began = Instant::now();
    let left = Left { inputs, troubles };
    // Two losses set a session aside here, not three: the third is no different.
    let model = Model {
        rules: Rules::PROTOCOL,
        left,
        kinds: Trouble::ALL,
        max_attempts: 2,
    };
    let explored = explore(&model, true);
    println!(
        "3 nodes, 1 session, {inputs} prompts, {troubles} troubles of {} kinds: {} states, {} transitions, \
         no run is needed longer than {} actions; {:.1} s",
        model.kinds.len(),
        explored.states.len(),
        explored.transitions,
        explored.longest,
        began.elapsed().as_secs_f32()
    );
    let run = |id| print_run(&explored.run_to(&model, id));
    if let Some((id, violation)) = explored.violated {
        panic!("{violation:?}\n{}", run(id));
    }
    if let Some(id) = explored.stranded() {
        panic!(
            "from the last state the session never comes to rest\n{}",
            run(id)
        );
    }
}

#[test]
fn nothing_wrong_is_reachable_and_rest_always_is() {
    hold(2, 2);
}

#[test]
fn nor_with_three_troubles() {
    hold(1, 3);
}

/// `TENURE_MODEL_INPUTS` and `TENURE_MODEL_TROUBLES` set the bound; three and two, else. Give it memory.
#[test]
#[ignore = "minutes, and gigabytes"]
fn nor_with_more() {
    let number = |name: &str, otherwise: u8| {
        std::env::var(name)
            .ok()
            .map_or(otherwise, |text| text.parse().expect("a small number"))
    };
    hold(
        number("TENURE_MODEL_INPUTS", 2),
        number("TENURE_MODEL_TROUBLES", 3),
    );
}
