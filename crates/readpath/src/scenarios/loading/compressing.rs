//! Compressed answers: welcome on slow links, and nowhere else.

use acstor_selection::CompressionCost;

use super::*;

fn compressing() -> ReadPathConfig {
    ReadPathConfig { compress_slow: true, ..adaptive() }
}

/// Returns the number of requests that got to `hosts`, and of those that welcome a compressed
/// answer.
fn asked(world: &World, hosts: &[&str]) -> (usize, usize) {
    let all: Vec<_> = hosts.iter().flat_map(|host| world.network.asked(host)).collect();
    let welcome = all.iter().filter(|asked| asked.request.accepts_compressed).count();
    (all.len(), welcome)
}

#[tokio::test(start_paused = true)]
async fn test_nobody_is_asked_to_compress_on_fast_links() {
    let (world, image) = world(&compressing(), u8::MAX, &[]);
    for host in &HOSTS[..3] {
        boot(&world, &image, &[host]).await;
    }
    let (all, welcome) = asked(&world, &HOSTS);
    assert!(all > 1000, "{all}");
    assert_eq!(welcome, 0, "of {all}");
    let name = "acstor_peer_compression_welcomed_total";
    assert_eq!(world.host("a").metric(name), 0);
}

/// All hosts at once: owners are slow for moments, all alike.
#[tokio::test(start_paused = true)]
async fn test_a_storm_on_fast_links_is_hardly_compressed() {
    let (world, image) = world(&compressing(), u8::MAX, &[]);
    boot(&world, &image, &HOSTS).await;
    let (all, welcome) = asked(&world, &HOSTS);
    assert!(welcome * 50 <= all, "{welcome} of {all}");
}

#[tokio::test(start_paused = true)]
async fn test_own_slow_link_has_nearly_all_compressed_and_boots_sooner() {
    let mut totals = Vec::new();
    for config in [adaptive(), compressing()] {
        let (world, image) = world(&config, u8::MAX, &[]);
        boot(&world, &image, &HOSTS[1..]).await;
        let before = asked(&world, &HOSTS);
        world.network.set_link_in("a", Link::new(LINK, 0.98));
        let boots = boot(&world, &image, &["a"]).await;
        report(if config.compress_slow { "compressed" } else { "as they are" }, 0.98, &boots);
        let after = asked(&world, &HOSTS);
        let (all, welcome) = (after.0 - before.0, after.1 - before.1);
        if config.compress_slow {
            assert!(welcome * 10 >= all * 9, "{welcome} of {all}");
            let counted = world.host("a").metric("acstor_peer_compression_welcomed_total");
            assert_eq!(counted as usize, welcome);
        } else {
            assert_eq!(welcome, 0);
        }
        totals.push(boots.total.as_secs_f64());
    }
    let ratio = totals[1] / totals[0];
    assert!(ratio <= 0.65, "{ratio:.2} of the time without");
}

#[tokio::test(start_paused = true)]
async fn test_loaded_owner_is_asked_to_compress_and_the_others_are_not() {
    let (world, image) = world(&compressing(), u8::MAX, &loaded(1, 0.95));
    for host in &HOSTS[..3] {
        boot(&world, &image, &[host]).await;
    }
    let (slow, slow_welcome) = asked(&world, &["h"]);
    assert!(slow_welcome * 2 >= slow, "{slow_welcome} of {slow}");
    let (others, others_welcome) = asked(&world, &HOSTS[..7]);
    assert!(others_welcome * 100 <= others, "{others_welcome} of {others}");
}

/// The rule goes by what is told and measured, and by nothing beside it.
#[tokio::test(start_paused = true)]
async fn test_narrow_link_has_nothing_compressed_by_processors_without_time() {
    for is_cpu_free in [true, false] {
        let (world, image) = world(&compressing(), u8::MAX, &[]);
        boot(&world, &image, &HOSTS[1..]).await;
        let before = asked(&world, &HOSTS);
        let host = world.host("a");
        host.path.set_free_rate(Some(10_000_000));
        host.path.set_compression(CompressionCost { is_cpu_free, ..CompressionCost::default() });
        boot(&world, &image, &["a"]).await;
        let after = asked(&world, &HOSTS);
        let (all, welcome) = (after.0 - before.0, after.1 - before.1);
        assert!(all > 100, "{all}");
        assert_eq!(welcome, if is_cpu_free { all } else { 0 });
        let counted = host.metric("acstor_peer_compression_welcomed_total");
        assert_eq!(counted as usize, welcome);
    }
}
