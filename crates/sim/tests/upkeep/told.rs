//! What a run leaves for an operator: a line in the log, and the Event of a finished bootstrap.

use std::io::Write;
use std::sync::Mutex;

use applecart_sim::mac::AgentHealth;

use super::*;

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// The lines about runs.
    fn runs(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().filter(|line| line.contains("went through the steps"));
        lines.map(str::to_owned).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn every_run_ends_in_a_line_with_each_steps_end_and_time_and_the_event_in_a_sum() {
    let (log, world) = (Log::default(), world(1, 1));
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false);
    let subscriber = subscriber.with_writer(move || writer.clone()).finish();
    // While there is but one, whether anybody listens is asked on the thread that first has
    // something to say, which may be another test's.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _logged = tracing::subscriber::set_default(subscriber);
    let mac = world.mac(&world.scaleway().hosts()[0].id).unwrap();
    mac.set_agent_health(AgentHealth::NeverStarts);
    play(&world, async {
        reach("a failed run", async || log.runs().len() == 1).await;
        mac.set_agent_health(AgentHealth::Runs);
        reach("a Machine Ready", async || ready(&world) == 1).await;
        reach("a look", async || log.runs().len() == 3).await;
    })
    .await;
    let runs = log.runs();
    let name = machines(&world)[0].name_any();
    for (run, parts) in [
        (&runs[0], ["wait for SSH: done in ", "auto-login: changed in ", "agent job: failed in "]),
        (
            &runs[1],
            ["wait for SSH: done in ", "auto-login: unchanged in ", "agent job: changed in "],
        ),
        (&runs[2], ["wait for SSH: done in ", "agent job: unchanged in ", "took_ms="]),
    ] {
        assert!(run.contains(" INFO ") && run.contains(&name), "{run}");
        assert!(parts.iter().all(|part| run.contains(part)), "{run}");
    }
    let events = world.api().objects("events");
    let mut notes =
        events.iter().filter_map(|event| event["note"].as_str().or(event["message"].as_str()));
    assert!(notes.any(|note| note.starts_with("bootstrapped: 1 of 9 steps changed in ")));
}
