// The guardian as a program of its own, for tests and for programs that cannot start themselves again.

fn main() {
    tenure_tools::guardian::maybe_run();
    eprintln!("tenure-guardian is started by Tenure, not by hand");
    std::process::exit(2);
}
