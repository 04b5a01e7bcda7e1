//! Scaleway's own Go SDK, old and new, finds in the simulator what it finds in the real service.
//! The program is `e2e/scaleway`; Go fetches the SDK from its module proxy, by the sums kept there.

#[path = "support/scaleway_http.rs"]
mod scaleway_http;

use std::path::Path;
use std::process::{Command, Output};

use applecart_sim::scaleway::{PageSize, Settings};
use scaleway_http::Served;

/// Builds the program with these flags, and runs it against an empty account: one for each size
/// that a page may have.
async fn conforms(version: &str, flags: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("conformance");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/scaleway");
    let mut build = Command::new("go");
    build.current_dir(sources).arg("build").args(flags).arg("-o").arg(&program).arg(".");
    build.env("GOFLAGS", "-buildvcs=false");
    let compiled = output(build).await;
    let problem = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "the SDK's program does not build: {problem}");
    for default_page_size in [PageSize::Twenty, PageSize::Fifty] {
        let mut settings = Settings::new(1);
        settings.unsure.default_page_size = default_page_size;
        passes(&program, version, Served::new(settings).await).await;
    }
}

async fn passes(program: &Path, version: &str, served: Served) {
    let mut run = Command::new(program);
    run.envs(served.scaleway.environment(&served.url, &"fr-par-1".parse().unwrap()));
    let output = output(run).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{problem}");
    let passed = said.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(passed >= 16, "{said}");
    let last = format!("{passed} of {passed} checks passed with {version}");
    assert_eq!(said.trim_end().lines().last(), Some(last.as_str()), "{said}");
    println!("{last}");
}

async fn output(mut command: Command) -> Output {
    let run = move || command.output().expect("Go is needed here: https://go.dev/doc/install");
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_that_running_fleets_use_finds_the_real_services_answers() {
    conforms("v1.0.0-beta.31", &["-modfile=older.mod"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_sdk_finds_the_real_services_answers() {
    conforms("v1.39.0", &["-tags=newer"]).await;
}
