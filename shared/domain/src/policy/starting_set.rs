//! The services that an agent has since its creation.

use crate::{Fingerprint, ServiceId};
use uuid::Uuid;

/// The services that were open when an agent was created (`docs/spec.md` §2.6). Each has the permissive policy, version
/// 1, until the agent has a policy row for it. Agents that were created under the same catalog share one set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartingSet {
    /// Sorted, without duplicates.
    services: Vec<ServiceId>,
}

impl StartingSet {
    /// The set of these services.
    pub fn of(services: impl IntoIterator<Item = ServiceId>) -> Self {
        let mut services: Vec<ServiceId> = services.into_iter().collect();
        services.sort_unstable();
        services.dedup();
        Self { services }
    }

    /// The services, in order.
    pub fn services(&self) -> &[ServiceId] {
        &self.services
    }

    /// Whether the set contains this service.
    pub fn contains(&self, service: ServiceId) -> bool {
        self.services.binary_search(&service).is_ok()
    }

    /// The set's key in storage: the hash of its content, so that the set under a key never changes.
    pub fn digest(&self) -> Fingerprint {
        Fingerprint::of_set(&self.to_bytes())
    }

    /// The services' UUIDs, 16 bytes each.
    pub fn to_bytes(&self) -> Vec<u8> {
        let uuids = self.services.iter().flat_map(|service| service.uuid().into_bytes());
        uuids.collect()
    }

    /// The set in these bytes; `None` if they are not the bytes of a set.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (uuids, rest) = bytes.as_chunks::<16>();
        let set = Self::of(uuids.iter().map(|uuid| ServiceId::from_uuid(Uuid::from_bytes(*uuid))));
        (rest.is_empty() && set.to_bytes() == bytes).then_some(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(number: u128) -> ServiceId {
        ServiceId::from_uuid(Uuid::from_u128(number))
    }

    #[test]
    fn the_set_digest_ignores_order_and_duplicates() {
        let set = StartingSet::of([3, 1, 2, 1].map(service));
        assert_eq!(set.services(), [1, 2, 3].map(service));
        assert_eq!(set.digest(), StartingSet::of([1, 2, 3].map(service)).digest());
        assert_ne!(set.digest(), StartingSet::of([1, 2].map(service)).digest());
        assert_eq!(
            [0, 1, 2, 3, 4].map(|number| set.contains(service(number))),
            [false, true, true, true, false]
        );
    }

    /// Unsorted, repeated or incomplete ids are refused.
    #[test]
    fn starting_sets_survive_encoding() {
        for set in [StartingSet::of([]), StartingSet::of([1, u128::MAX].map(service))] {
            assert_eq!(StartingSet::from_bytes(&set.to_bytes()), Some(set));
        }
        let bytes = |numbers: &[u128]| {
            numbers
                .iter()
                .flat_map(|number| number.to_be_bytes())
                .collect::<Vec<u8>>()
        };
        for wrong in [bytes(&[2, 1]), bytes(&[1, 1]), vec![0; 15], vec![0; 17]] {
            assert_eq!(StartingSet::from_bytes(&wrong), None);
        }
    }
}
