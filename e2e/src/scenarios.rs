//! The stories, and the one list of them.

mod chart;
mod conformance;
mod contract;
mod contract_live;
mod definitions;
mod explain;
mod fleet;
mod foreign;
mod ground;
mod moving;
mod orphans;
mod ownership;
mod recovery;
mod running;
mod take_over;
mod upkeep;

use anyhow::Result;
pub use contract_live::Contract;
use futures::future::LocalBoxFuture;

use crate::ground::{Ground, Needs};

/// One story on the ground.
pub struct Scenario {
    /// A sentence about what is so.
    pub name: &'static str,
    /// What the ground must have.
    pub needs: Needs,
    /// The story; an error or a panic is a failure.
    pub run: fn(&mut Ground) -> LocalBoxFuture<'_, Result<()>>,
}

impl Scenario {
    /// Whether its name contains one of the words, or there are none.
    #[must_use]
    pub fn is_in(&self, wanted: &[String]) -> bool {
        wanted.is_empty() || wanted.iter().any(|word| self.name.contains(word.as_str()))
    }
}

/// `scenario!(ApiServer, file::name_of_the_function)`.
macro_rules! scenario {
    ($needs:ident, $file:ident :: $name:ident) => {
        Scenario {
            name: stringify!($name),
            needs: Needs::$needs,
            run: |ground| Box::pin($file::$name(ground)),
        }
    };
}

/// Every scenario, in the order in which they begin.
pub const ALL: &[Scenario] = &[
    scenario!(ApiServer, ground::the_api_server_answers_and_knows_who_asks),
    scenario!(
        OwnControlPlane,
        ground::an_account_may_do_what_its_role_says_and_refusals_are_on_record
    ),
    scenario!(Controllers, ground::a_nodes_certificate_is_signed_once_it_is_approved),
    scenario!(Controllers, ground::the_scheduler_places_a_pod_on_the_node_that_fits),
    scenario!(ApiServer, definitions::our_definitions_are_accepted_and_established),
    scenario!(ApiServer, definitions::defaults_fill_in_what_an_object_does_not_say),
    scenario!(ApiServer, definitions::rules_refuse_what_cannot_work_and_say_what_to_do),
    scenario!(ApiServer, definitions::columns_show_what_an_operator_asks_first),
    scenario!(ApiServer, definitions::spec_and_status_do_not_touch_each_other),
    scenario!(ApiServer, definitions::a_pool_is_scaled_like_a_deployment),
    scenario!(Controllers, conformance::the_simulated_api_server_answers_as_the_real_one),
    scenario!(ApiServer, explain::every_field_says_what_it_is_for),
    scenario!(Programs, chart::the_chart_refuses_wrong_values_by_name),
    scenario!(Programs, chart::the_chart_takes_hostile_values_as_text),
    scenario!(OwnControlPlane, running::health_pages_say_what_was_checked),
    scenario!(Programs, take_over::objects_of_the_system_before_us_live_on_under_our_definitions),
    scenario!(ApiServer, contract::contract_01_the_definitions_speak_both_contracts),
    scenario!(ApiServer, contract::contract_02_the_definitions_are_found_where_cluster_api_looks),
    scenario!(ApiServer, contract::contract_03_the_definitions_carry_clusterctls_labels),
    scenario!(ApiServer, contract::contract_04_conditions_are_a_map_by_type_and_the_only_ones),
    scenario!(ClusterApi, contract::contract_06_a_templates_metadata_lands_on_its_clones),
    scenario!(
        ClusterApi,
        contract::cluster_api_believes_what_our_machine_says_under_both_contracts
    ),
    scenario!(Contract, contract_live::contract_07_a_fresh_object_is_left_alone),
    scenario!(Contract, contract_live::contract_08_the_finalizer_comes_before_the_first_call),
    scenario!(Contract, contract_live::contract_11_a_lost_host_is_told),
    scenario!(Contract, contract_live::contract_09_provisioned_comes_with_a_provider_id),
    scenario!(Contract, contract_live::contract_13_machines_are_ready_and_available),
    scenario!(Contract, contract_live::contract_18_what_others_wrote_stays),
    scenario!(Contract, contract_live::contract_14_paused_means_no_call_outside),
    scenario!(Contract, contract_live::contract_23_a_move_waits_for_claims_bootstraps_and_releases),
    scenario!(Contract, contract_live::contract_21_an_externally_managed_cluster_is_left_alone),
    scenario!(Contract, contract_live::contract_10_what_is_provisioned_stays_so),
    scenario!(Contract, contract_live::contract_12_a_time_moves_with_its_status_alone),
    scenario!(Contract, contract_live::contract_04_conditions_always_have_reason_and_time),
    scenario!(Contract, contract_live::contract_05_nothing_of_ours_holds_a_null),
    scenario!(Contract, contract_live::contract_24_delete_for_move_calls_nobody),
    scenario!(Contract, contract_live::contract_15_an_orphan_deletes_cleanly),
    scenario!(
        ClusterApi,
        fleet::a_fleet_grows_shrinks_and_leaves_nothing_while_processes_are_killed
    ),
    scenario!(
        ClusterApi,
        fleet::contract_16_17_with_our_control_plane_nodes_go_and_jobs_are_waited_for
    ),
    scenario!(
        ClusterApi,
        foreign::a_cluster_whose_secrets_are_forbidden_says_so_and_the_rest_goes_on
    ),
    scenario!(ClusterApi, ownership::a_fleet_rolls_to_a_new_template_under_two_providers),
    scenario!(ClusterApi, ownership::a_detached_machine_goes_without_its_host),
    scenario!(
        ClusterApi,
        ownership::a_terminated_machines_host_goes_now_or_when_its_licence_allows
    ),
    scenario!(
        ClusterApi,
        orphans::a_force_deleted_machines_host_is_returned_by_the_sweep_and_nothing_is_left
    ),
    scenario!(
        ClusterApi,
        orphans::a_provider_that_only_observes_tells_what_it_would_do_and_does_nothing
    ),
    scenario!(ClusterApi, recovery::a_wedged_mac_recovers_through_the_tiers_and_delays_nobody),
    scenario!(ClusterApi, moving::contract_22_a_fleet_moves_to_another_cluster_and_no_host_notices),
    scenario!(OwnControlPlane, ground::two_control_planes_run_side_by_side),
    scenario!(OwnControlPlane, ground::kill_9_of_the_runner_leaves_no_process),
    scenario!(OwnControlPlane, ground::ctrl_c_ends_everything_and_leaves_no_data),
];

/// Lines of Cluster API's checklist that no scenario shows yet, and why.
pub const MISSING: &[(u32, &str)] = &[
    (19, "an empty pool under a MachineHealthCheck: the chart has none yet"),
    (20, "scale from zero: the template has no capacity yet"),
    (25, "clusterctl init: there is no release with components yet"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Lines of the checklist.
    const LINES: u32 = 25;

    #[test]
    fn every_line_of_the_checklist_is_a_scenario_or_said_to_be_missing() {
        let lines = |scenario: &Scenario| {
            let numbers = scenario.name.strip_prefix("contract_").unwrap_or_default().split('_');
            numbers.map_while(|word| word.parse().ok()).collect::<Vec<u32>>()
        };
        let shown = ALL.iter().flat_map(lines);
        let known: BTreeSet<u32> = shown.chain(MISSING.iter().map(|(line, _)| *line)).collect();
        assert_eq!(known, (1..=LINES).collect());
    }

    #[test]
    fn no_two_scenarios_share_a_name() {
        let names: BTreeSet<&str> = ALL.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
