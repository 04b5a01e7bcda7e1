//! What a run does to the world. Each story is a few lines.

pub mod builder;
mod hosts;
mod outage;
mod pods;
mod recovery;
mod sharing;
mod steps;

use std::fmt;
use std::time::Duration;

use applecart_sim::faults::{Process, Step};
use applecart_sim::world::{FLEET, Install, World};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub use steps::{LEASES, MACHINES, all, machines, number, said, scale};
use steps::{empty_fleet, fleet, has_host, reach};

/// How long two providers both believe to lead: longer than a claim and a bootstrap take.
const OVERLAP: Duration = Duration::from_mins(4);
/// How long eight bootstraps take that fail at once, with the waits between them, and an exchange.
const EIGHT_FAILURES: Duration = Duration::from_hours(1);
/// How long Cluster API may take to make a Machine of what it saw before nobody wanted one.
const CLUSTER_API: Duration = Duration::from_secs(30);
/// Names of Machines here, by which an orphan is known.
const CLAIM_PREFIX: &str = "macs-";
/// How long a host may not be deleted yet: its Lease goes when it does, after any silence.
const FLOOR: Duration = Duration::from_hours(30);
/// How often a sweep looks that a story waits for: what fails is tried again within the time that
/// an oracle allows.
const SOON: Duration = Duration::from_mins(5);
/// How often a sweep looks that races with claims.
const HASTE: Duration = Duration::from_secs(20);

/// A story that every fault must leave with the same end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub enum Story {
    /// One Machine gets a Mac and becomes Ready (P6, LH3).
    Claim,
    /// A Ready Machine goes: its Mac ends wiped in the pool, nothing is left (P16).
    Release,
    /// A Machine is deleted as soon as it has a host: nothing is stranded (LH2).
    EarlyDelete,
    /// A Machine is deleted at any moment of its claim: each run deletes at another effect.
    DeleteAnywhere,
    /// The fleet grows to two Machines and shrinks to one.
    Scale,
    /// The fleet grows to five, shrinks to two and grows to five again, from a pool of six.
    Rescale,
    /// The fleet's template changes: another Machine comes, then the first one goes.
    Roll,
    /// The pool is empty; a Mac that a person adds to it is taken.
    Refill,
    /// A Machine goes, and its host with it, as a person asked for.
    Terminate,
    /// The same before the host may be deleted: its deletion is scheduled (P15).
    TerminateEarly,
    /// The pool is empty, and a Machine asks for a host of its own: one is bought, used, and
    /// deleted with it (G17).
    AutoOrder,
    /// A bootstrap fails three times at once: one reboot, and all is well (LH21).
    FailThrice,
    /// A bootstrap fails eight times at once: one reboot, one exchange.
    FailEight,
    /// Bootstraps on a host fail for ever, at once: one reboot, one exchange.
    FailForever,
    /// A host fails one owner after another, until it is set aside for a person.
    WornOut,
    /// A Machine goes whose host reboots at the time (LH22).
    ReleaseRebooting,
    /// A host is deleted by hand under its Machine, which is then deleted (LH16).
    Vanish,
    /// A host is renamed by hand under its Machine: it stays as it is when the Machine goes.
    Rename,
    /// A Machine goes whose host is locked for ever: the host is set aside for a person.
    Lock,
    /// A Machine that names no pool goes; the provider knows one.
    Legacy,
    /// A Machine that names no pool goes, and nobody knows one: its host stays as it is.
    LegacyStranded,
    /// A Machine is detached by a person: its Mac works on.
    Detach,
    /// A Machine is moved to another cluster: its Mac works on.
    Move,
    /// An object is deleted by force: the sweep returns its host.
    ForceDelete,
    /// Machines come and go while the sweep looks all the time.
    SweepRace,
    /// Scaleway's token is revoked for an hour.
    Token,
    /// The provider is upgraded in mid-claim, and brings another agent: each run upgrades at
    /// another effect (G12).
    UpgradeAnywhere,
    /// The API server is gone for an hour, in the middle of a claim: no VM is touched.
    Outage,
    /// The agent of a Mac alone does not reach the API server for ten minutes, while one of its two
    /// runners has a job: the job ends well (S37, G15).
    Partition,
    /// The clocks of provider, pools and agents jump an hour forward in the middle of a claim.
    ClockForward,
    /// The same, an hour back.
    ClockBack,
    /// All status of a Machine is lost: it is rebuilt, and nothing happens to its host (G11).
    Forget,
    /// A Pod runs to its success on a Mac and is deleted.
    Pod,
    /// A pool of runners warms up to two, and cools down to none.
    WarmUp,
    /// A warm runner does one job and makes room for a fresh one.
    Job,
    /// A Machine is deleted under a running job: the job ends first (LH24).
    Drain,
    /// A pool gets another image: its two runners are replaced.
    RollImage,
    /// The provider is upgraded under a job, and brings another Tart: one Mac after the other is
    /// emptied for it, and takes runners again (V7).
    Update,
    /// A runner gets a job, and its pool is deleted: the job ends first (LH8).
    DeletePool,
    /// A Machine comes while two providers believe to lead, until the older one stops; then it goes
    /// (G7).
    TwoLeaders,
    /// A Machine goes while two providers believe to lead, to the end (G7).
    TwoLeadersRelease,
    /// A Machine is deleted as soon as it has a host, while two providers believe to lead (G7).
    TwoLeadersEarly,
    /// A Machine goes, and its host with it, while two providers believe to lead (G7).
    TwoLeadersTerminate,
    /// A Mac gets a runner of GitHub's of its own, and goes: so does the runner (C5).
    Builder,
    /// A bootstrap fails eight times while two providers believe to lead, until the older one
    /// stops: one reboot, one exchange (G7, LH21).
    TwoLeadersSwap,
    /// An object is deleted by force, none shall take its place, and two sweeps return its host at
    /// once (G7).
    TwoLeadersSweep,
    /// A warm runner does one job, the pool grows to two, gets another image and shrinks to one,
    /// while two processes believe to lead the runner pools (G7).
    TwoLeadersPools,
    /// Two Machines of one name, in two namespaces: the second waits for its turn (LH14).
    Namesakes,
    /// Two Machines of one name, in two namespaces, come at the same moment (LH14).
    Twins,
    /// Two clusters claim from one pool at once.
    Neighbours,
}

/// How big a story's world is.
pub struct Size {
    /// Macs in the pool.
    pub hosts: usize,
    /// Machines at the beginning.
    pub machines: u32,
    /// Providers that believe to lead.
    pub providers: usize,
    /// Whether there is a second cluster, of the same size, that shares the pool.
    pub neighbour: bool,
}

/// What a story leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// Machines, each with its host, and so many VMs.
    Fleet(usize),
    /// No Machine and nothing of any: all hosts that are left are in the pool.
    Nothing,
    /// The same, but one host is set aside for a person.
    Quarantined,
    /// The same, but one host goes when it may.
    Retiring,
    /// The same, but one host is as a person left it.
    ByHand,
    /// No Machine, but a host that nobody knows where to return to, under its last name.
    Stranded,
    /// No Machine, but a host that works on.
    Working,
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no story is hidden");
        f.write_str(value.get_name())
    }
}

impl Story {
    /// Every story.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied()
    }

    /// Whether it begins at any moment of a claim, at another one in each run.
    pub fn is_anywhere(self) -> bool {
        matches!(self, Self::DeleteAnywhere | Self::UpgradeAnywhere)
    }

    /// How big its world is.
    pub fn size(self) -> Size {
        let (hosts, machines) = match self {
            Self::Rescale => (6, 0),
            Self::Scale | Self::Token | Self::Outage | Self::Twins => (3, 1),
            Self::ForceDelete | Self::TwoLeadersSweep | Self::Update => (3, 2),
            Self::SweepRace => (4, 1),
            Self::Refill | Self::WornOut => (1, 0),
            Self::AutoOrder => (0, 0),
            Self::FailThrice | Self::FailEight | Self::FailForever | Self::TwoLeadersSwap => (2, 0),
            _ => (2, 1),
        };
        let leaders = matches!(
            self,
            Self::TwoLeaders
                | Self::TwoLeadersRelease
                | Self::TwoLeadersEarly
                | Self::TwoLeadersTerminate
                | Self::TwoLeadersSwap
                | Self::TwoLeadersSweep
                | Self::TwoLeadersPools
        );
        let providers = if leaders { 2 } else { 1 };
        Size { hosts, machines, providers, neighbour: self == Self::Neighbours }
    }

    /// How its provider is installed at first.
    pub fn install(self) -> Install {
        let usual = Install::default();
        match self {
            Self::LegacyStranded => Install { default_pool: false, ..usual },
            // Which pool a host goes back to, its Lease alone says.
            Self::ForceDelete => Install {
                claim_prefix: Some(CLAIM_PREFIX),
                sweep_interval: SOON,
                default_pool: false,
                ..usual
            },
            Self::TwoLeadersSweep => {
                Install { claim_prefix: Some(CLAIM_PREFIX), sweep_interval: SOON, ..usual }
            }
            Self::Terminate
            | Self::TerminateEarly
            | Self::AutoOrder
            | Self::Vanish
            | Self::TwoLeadersEarly
            | Self::TwoLeadersTerminate
            | Self::Namesakes => Install { sweep_interval: SOON, ..usual },
            Self::SweepRace => {
                let claim_prefix = Some(CLAIM_PREFIX);
                Install { claim_prefix, sweep_interval: HASTE, default_pool: false, ..usual }
            }
            _ => usual,
        }
    }

    /// What it leaves behind.
    pub fn leaves(self) -> Leaves {
        match self {
            Self::Release
            | Self::EarlyDelete
            | Self::DeleteAnywhere
            | Self::Terminate
            | Self::AutoOrder
            | Self::ReleaseRebooting
            | Self::Vanish
            | Self::Legacy
            | Self::Drain
            | Self::Builder
            | Self::TwoLeaders
            | Self::TwoLeadersRelease
            | Self::TwoLeadersEarly
            | Self::TwoLeadersTerminate => Leaves::Nothing,
            Self::TerminateEarly => Leaves::Retiring,
            Self::Rename => Leaves::ByHand,
            Self::Lock | Self::WornOut => Leaves::Quarantined,
            Self::LegacyStranded => Leaves::Stranded,
            Self::Detach | Self::Move => Leaves::Working,
            Self::Job | Self::TwoLeadersPools | Self::Outage => Leaves::Fleet(1),
            Self::Update => Leaves::Fleet(4),
            Self::RollImage | Self::Partition => Leaves::Fleet(2),
            Self::Claim
            | Self::Scale
            | Self::Rescale
            | Self::Roll
            | Self::Refill
            | Self::FailThrice
            | Self::FailEight
            | Self::FailForever
            | Self::ForceDelete
            | Self::TwoLeadersSwap
            | Self::TwoLeadersSweep
            | Self::SweepRace
            | Self::Token
            | Self::UpgradeAnywhere
            | Self::ClockForward
            | Self::ClockBack
            | Self::Forget
            | Self::Pod
            | Self::WarmUp
            | Self::DeletePool
            | Self::Namesakes
            | Self::Twins
            | Self::Neighbours => Leaves::Fleet(0),
        }
    }

    /// What must be before the faults begin: other stories sweep the way there.
    pub async fn begin(self, world: &World) -> Result<(), String> {
        match self {
            Self::Claim
            | Self::EarlyDelete
            | Self::DeleteAnywhere
            | Self::UpgradeAnywhere
            | Self::TwoLeaders
            | Self::TwoLeadersEarly
            | Self::ClockForward
            | Self::ClockBack
            | Self::Rescale => Ok(()),
            Self::Refill | Self::Neighbours => hosts::empty_pool(world),
            Self::FailThrice => recovery::fail(world, 3),
            Self::FailEight | Self::TwoLeadersSwap => recovery::fail(world, 8),
            Self::FailForever => recovery::fail(world, usize::MAX),
            Self::WornOut => recovery::wear_out(world).await,
            Self::AutoOrder => hosts::ask_for_hosts(world).await,
            Self::ForceDelete => fleet(world, 2).await,
            Self::Job | Self::Drain | Self::Outage | Self::DeletePool => {
                pods::keep_idle(world, 1, 1).await
            }
            Self::RollImage | Self::Partition => pods::keep_idle(world, 1, 2).await,
            Self::Update => pods::keep_idle(world, 2, 4).await,
            Self::TwoLeadersPools => pods::one_keeper(world).await,
            Self::Builder => builder::begin(world).await,
            Self::Legacy | Self::LegacyStranded => {
                fleet(world, 1).await?;
                hosts::name_no_pool(world).await
            }
            Self::TwoLeadersRelease | Self::TwoLeadersTerminate => one_leader(world, 1).await,
            Self::TwoLeadersSweep => one_leader(world, 2).await,
            _ => fleet(world, 1).await,
        }
    }

    /// What the run without faults must show besides: how often and when, not only that.
    pub fn check(self, steps: &[Step]) -> Result<(), String> {
        let tiers = |failures, wipes| recovery::Tiers { failures, wipes };
        match self {
            Self::FailThrice => tiers(3, 0).check(steps),
            Self::FailEight | Self::FailForever => tiers(8, 1).check(steps),
            Self::TwoLeadersSwap => recovery::once_each(steps),
            _ => Ok(()),
        }
    }

    /// What must not be in a trace of it, whatever went wrong.
    pub fn never(self, steps: &[Step]) -> Result<(), String> {
        match self {
            Self::FailThrice | Self::FailEight | Self::FailForever | Self::TwoLeadersSwap => {
                recovery::none_early(steps)
            }
            _ => Ok(()),
        }
    }

    /// Plays the story; an error says what did not come about.
    pub async fn play(self, world: &World) -> Result<(), String> {
        match self {
            Self::Claim => fleet(world, 1).await,
            Self::Release | Self::Legacy | Self::LegacyStranded | Self::TwoLeadersRelease => {
                empty_fleet(world).await
            }
            Self::DeleteAnywhere => want_none(world).await,
            Self::EarlyDelete | Self::TwoLeadersEarly => {
                reach("a host claimed", || has_host(world)).await?;
                empty_fleet(world).await
            }
            Self::Scale => grow_and_shrink(world, &[2, 1]).await,
            Self::Rescale => grow_and_shrink(world, &[5, 2, 5]).await,
            Self::TwoLeaders => {
                tokio::time::sleep(OVERLAP).await;
                world.stop(&Process::Provider);
                fleet(world, 1).await?;
                empty_fleet(world).await
            }
            Self::TwoLeadersSwap => {
                scale(world, 1).await?;
                tokio::time::sleep(EIGHT_FAILURES).await;
                world.stop(&Process::Provider);
                fleet(world, 1).await
            }
            Self::Roll => hosts::roll(world).await,
            Self::Refill => hosts::refill(world).await,
            Self::Terminate | Self::TwoLeadersTerminate => {
                hosts::terminate(world, Duration::ZERO).await
            }
            Self::TerminateEarly => hosts::terminate(world, FLOOR).await,
            Self::AutoOrder => hosts::rent(world).await,
            Self::WornOut => recovery::set_aside(world).await,
            Self::ReleaseRebooting => hosts::release_rebooting(world).await,
            Self::Vanish => hosts::vanish(world).await,
            Self::Rename => hosts::rename(world).await,
            Self::Lock => hosts::lock(world).await,
            Self::Detach => hosts::detach(world).await,
            Self::Move => hosts::move_away(world).await,
            Self::ForceDelete => hosts::force_delete(world, 2).await,
            // Two leaders disturb each other's bootstraps: nobody takes its place.
            Self::TwoLeadersSweep => hosts::force_delete(world, 1).await,
            Self::SweepRace => hosts::race(world).await,
            Self::FailThrice | Self::FailEight | Self::FailForever => {
                scale(world, 1).await?;
                fleet(world, 1).await
            }
            Self::Token => recovery::revoke_token(world).await,
            Self::UpgradeAnywhere => recovery::upgrade(world).await,
            Self::Outage => outage::lose_api_server(world).await,
            Self::Partition => outage::cut_off(world).await,
            Self::ClockForward => outage::jump(world, outage::HOUR).await,
            Self::ClockBack => outage::jump(world, -outage::HOUR).await,
            Self::Forget => recovery::forget(world).await,
            Self::Pod => pods::one_pod(world).await,
            Self::WarmUp => pods::warm_up(world).await,
            Self::TwoLeadersPools => pods::two_keepers(world).await,
            Self::Job => pods::one_job(world).await,
            Self::Drain => pods::drain(world).await,
            Self::RollImage => pods::roll_image(world).await,
            Self::Builder => builder::register(world).await,
            Self::Update => pods::update(world).await,
            Self::DeletePool => pods::delete_pool(world).await,
            Self::Namesakes => sharing::namesakes(world).await,
            Self::Twins => sharing::twins(world).await,
            Self::Neighbours => sharing::neighbours(world).await,
        }
    }
}

/// Waits for so many Machines that one provider made; from then on there are two.
async fn one_leader(world: &World, machines: usize) -> Result<(), String> {
    world.stop(&Process::SecondProvider);
    fleet(world, machines).await?;
    world.start_again(&Process::SecondProvider);
    Ok(())
}

/// Nobody wants a Machine any more, at a moment at which there may be none yet.
async fn want_none(world: &World) -> Result<(), String> {
    scale(world, 0).await?;
    tokio::time::sleep(CLUSTER_API).await;
    empty_fleet(world).await
}

async fn grow_and_shrink(world: &World, sizes: &[u32]) -> Result<(), String> {
    for size in sizes {
        scale(world, *size).await?;
        fleet(world, usize::try_from(*size).unwrap_or(usize::MAX)).await?;
    }
    Ok(())
}

/// Whether a name is one that Machines of the fleet have.
pub fn is_claim_name(name: &str) -> bool {
    name.strip_prefix(FLEET).is_some_and(|rest| rest.starts_with('-'))
}
