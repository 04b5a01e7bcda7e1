//! Processes that die at any moment.

use std::time::Duration;

use anyhow::{Result, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use super::{Installation, Program, request};

impl Installation {
    /// From now on processes are killed at seeded moments, as `kill -9` does, and started again;
    /// the first is a provider.
    pub fn disturb(&mut self, on: bool) {
        let seed = self.plan.seed;
        self.chaos = on.then(|| (SmallRng::seed_from_u64(seed), Instant::now()));
    }

    pub(super) async fn kill_something(&mut self) -> Result<()> {
        let Some((random, due)) = &mut self.chaos else { return Ok(()) };
        if Instant::now() < *due {
            return Ok(());
        }
        *due = Instant::now() + Duration::from_millis(random.random_range(3_000..12_000));
        let drawn = random.random_range(0..=self.programs.len());
        let number = random.random_range(0..100);
        let provider = self.programs.iter().position(Program::is_provider);
        let which = provider.filter(|_| self.provider_kills() == 0).unwrap_or(drawn);
        if let Some(program) = self.programs.get_mut(which) {
            program.process.kill()?;
            *self.kills.entry(program.name.clone()).or_default() += 1;
            return program.start(&self.folder);
        }
        self.kill_an_agent(number).await
    }

    /// How often a provider was killed so far.
    #[must_use]
    pub fn provider_kills(&self) -> usize {
        let providers = self.programs.iter().filter(|program| program.is_provider());
        providers.filter_map(|program| self.kills.get(&program.name)).sum()
    }

    /// Somebody was killed who could have lost something; says who, and with which seed.
    pub fn was_disturbed(&self) -> Result<()> {
        println!("killed with --seed {}: {:?}", self.plan.seed, self.kills);
        ensure!(self.provider_kills() > 0, "no provider was killed: {:?}", self.kills);
        Ok(())
    }

    /// One Mac's agent dies; its launchd starts it again.
    async fn kill_an_agent(&mut self, number: usize) -> Result<()> {
        let macs = self.macs().await?;
        let running: Vec<&str> = macs
            .iter()
            .filter(|mac| mac["agent_pid"].is_number())
            .filter_map(|mac| mac["id"].as_str())
            .collect();
        let Some(id) = running.get(number % running.len().max(1)) else { return Ok(()) };
        let url = format!("{}/macs/{id}/kill-agent", self.macs_url);
        request("POST", &url, &[], None).await?;
        *self.kills.entry("agents".to_owned()).or_default() += 1;
        Ok(())
    }
}
