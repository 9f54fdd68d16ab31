use proptest::prelude::*;

use super::*;

fn chain(neighbourhood: Neighbourhood, position: usize, racks: &[u64]) -> Vec<usize> {
    let above = |at: &usize| neighbourhood.parent(*at, racks);
    std::iter::successors(above(&position), above).collect()
}

#[test]
fn test_hops_are_those_of_each_order() {
    let of = |order, fan_out| -> Vec<u32> {
        (0..8).map(|position| Neighbourhood::new(order, fan_out).hops(position)).collect()
    };
    assert_eq!(of(Order::Ring, 2), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(of(Order::KRing, 2), [1, 1, 2, 2, 3, 3, 4, 4]);
    assert_eq!(of(Order::Tree, 2), [1, 1, 2, 2, 2, 2, 3, 3]);
    assert_eq!(of(Order::Topology, 2), [1, 2, 2, 3, 3, 3, 3, 4]);
    assert_eq!(of(Order::Tree, 1), of(Order::Ring, 1));
    assert_eq!(Neighbourhood::new(Order::Tree, 2).hops(999), 9, "a thousand hosts");
}

#[test]
fn test_topology_has_the_own_rack_first() {
    let topology = Neighbourhood::new(Order::Topology, 2);
    let racks = [7, 7, 8, 7, 8, 9, 7, 7];
    let parents: Vec<Option<usize>> = (0..8).map(|at| topology.parent(at, &racks)).collect();
    let heads = [None, Some(0), None, Some(0), Some(2), Some(0), Some(1), Some(1)];
    assert_eq!(parents, heads);
}

#[test]
fn test_names_are_read_back() {
    for order in Order::ALL {
        assert_eq!(Order::from_name(order.as_str()), Some(order));
    }
    assert_eq!(Order::from_name("none"), None);
}

proptest! {
    /// Whatever joins: a hint reaches each member once, over earlier ones only, and nobody passes it on
    /// to more than the order allows.
    #[test]
    fn proptest_everybody_is_reached_and_nobody_has_too_many(
        order in prop::sample::select(Order::ALL.to_vec()),
        fan_out in 0u32..6,
        racks in prop::collection::vec(0u64..4, 1..60),
    ) {
        let neighbourhood = Neighbourhood::new(order, fan_out);
        let mut children = vec![0; racks.len()];
        let mut of_rendezvous = 0;
        for position in 0..racks.len() {
            let up = chain(neighbourhood, position, &racks);
            prop_assert!(up.is_sorted_by(|below, above| below > above), "{:?}", up);
            match neighbourhood.parent(position, &racks) {
                Some(parent) => {
                    prop_assert!(parent < position);
                    children[parent] += 1;
                }
                None => of_rendezvous += 1,
            }
            if order == Order::Topology {
                // Once it is in the rack it stays there.
                let is_own = |at: &&usize| racks[**at] == racks[position];
                let own = up.iter().filter(is_own).count();
                prop_assert_eq!(up.iter().take_while(is_own).count(), own);
            }
        }
        let most = neighbourhood.fan_out() * if order == Order::Topology { 2 } else { 1 };
        prop_assert!(children.iter().all(|count| *count <= most), "{:?}", children);
        prop_assert!(of_rendezvous <= neighbourhood.fan_out());
    }

    /// The number of hops is that of the members on the way.
    #[test]
    fn proptest_hops_are_those_of_the_chain(
        order in prop::sample::select(Order::ALL.to_vec()),
        fan_out in 1u32..6,
        position in 0u32..200,
    ) {
        let neighbourhood = Neighbourhood::new(order, fan_out);
        let racks = vec![0; position as usize + 1];
        let up = chain(neighbourhood, position as usize, &racks);
        prop_assert_eq!(neighbourhood.hops(position) as usize, up.len() + 1);
    }
}
