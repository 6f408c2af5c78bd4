//! A shifted wall clock: off by as much as asked, while durations and the process itself stay as they are.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use tenure_testbed::faketime;

const DAY: i64 = 86_400;

fn seconds(clock: ClockId) -> i64 {
    clock_gettime(clock).unwrap().tv_sec()
}

#[test]
#[ignore = "a child of another test"]
fn child_prints_its_clocks() {
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    println!(
        "clocks {wall} {} {} {}",
        seconds(ClockId::CLOCK_MONOTONIC),
        seconds(ClockId::CLOCK_BOOTTIME),
        std::process::id()
    );
}

#[test]
fn the_wall_clock_is_off_and_the_others_are_true() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "clock::child_prints_its_clocks",
        "--ignored",
        "--nocapture",
    ]);
    for shift in [DAY, -DAY] {
        match faketime::shift(&mut command, shift) {
            Ok(_) => {}
            Err(missing) => {
                assert!(
                    missing.is_missing() && std::env::var_os("CI").is_none(),
                    "{missing}"
                );
                eprintln!("skipped: {missing}");
                return;
            }
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, clocks) = text.split_once("clocks ").expect(&text);
        let told: Vec<i64> = clocks
            .split_whitespace()
            .take(3)
            .map(|number| number.parse().unwrap())
            .collect();
        let near = |told: i64, true_one: i64| (told - true_one).abs() < 600;
        assert!(
            near(told[0], seconds(ClockId::CLOCK_REALTIME) + shift),
            "{text}"
        );
        assert!(near(told[1], seconds(ClockId::CLOCK_MONOTONIC)), "{text}");
        assert!(near(told[2], seconds(ClockId::CLOCK_BOOTTIME)), "{text}");
    }
}
