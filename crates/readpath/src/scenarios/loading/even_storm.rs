//! A boot storm on cold hosts with the same traffic beside it everywhere: nothing to adapt to, so the
//! origin is to give each chunk once.

use super::*;

/// Letters name 32 hosts, as many as on the testbed.
const STORM_HOSTS: usize = 32;
const STORM_IMAGES: usize = 5;
const GUESTS: usize = 5 * STORM_HOSTS;
const STRETCHES: u64 = 15;
const STRETCH_CHUNKS: u64 = 4;

/// Boots guests of a few images on all hosts within a second; those of an image read the same in the
/// same order. Returns how long a boot took on average, and how many chunks the origin gave.
async fn storm(config: &ReadPathConfig, load: f64, origin_link: f64) -> (Duration, usize) {
    let names: Vec<String> =
        ('a'..='z').chain('A'..='Z').take(STORM_HOSTS).map(String::from).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::new(&names, config);
    world.origin.set_link(Link::new(origin_link, 0.0));
    world.origin.set_delay(ORIGIN_DELAY);
    for host in &names {
        world.network.set_link(host, Link::new(LINK, load));
        world.network.set_link_in(host, Link::new(LINK, load));
    }
    let images: Vec<Image> = (0..STORM_IMAGES)
        .map(|number| {
            world.image(Shape { chunks_per_pack: 200, ..Shape::plain(number as u8 + 1, 400) })
        })
        .collect();
    let boots = (0..GUESTS).map(|guest| {
        let (image, host) = (&images[guest / STORM_HOSTS], world.host(names[guest % STORM_HOSTS]));
        async move {
            tokio::time::sleep(Duration::from_millis(guest as u64 * 397 % 1000)).await;
            let start = Instant::now();
            for stretch in 0..STRETCHES {
                for chunk in 0..STRETCH_CHUNKS {
                    host.read_chunk(image, stretch * 7 % 25 * 16 + chunk).await.unwrap();
                }
            }
            start.elapsed()
        }
    });
    let times = join_all(boots).await;
    (times.iter().sum::<Duration>() / GUESTS as u32, world.origin.bytes() / CHUNK)
}

#[tokio::test(start_paused = true)]
async fn test_even_storm_on_cold_hosts_costs_the_origin_each_chunk_about_once() {
    let unaware = ReadPathConfig { load_aware: false, ..adaptive() };
    let wanted = STORM_IMAGES * (STRETCHES * STRETCH_CHUNKS) as usize;
    for (load, width, most_percent) in [(0.4, 0.25, 104), (0.7, 0.25, 110)] {
        let (time_unaware, given_unaware) = storm(&unaware, load, LINK * width).await;
        let (time, given) = storm(&adaptive(), load, LINK * width).await;
        println!(
            "even storm, load {load}: {time_unaware:.2?}, {given_unaware} chunks of {wanted}; \
             load-aware {time:.2?}, {given} chunks"
        );
        assert_eq!(given_unaware, wanted);
        assert!(given * 100 <= wanted * most_percent, "{given} chunks of {wanted}");
        assert!(time <= time_unaware * 115 / 100, "{time:?} against {time_unaware:?}");
    }
}
