//! The default services of an agent, which are enabled when the agent is created.

use crate::{
    Amount, EnabledService, Fingerprint, PolicyChange, PolicyUpdate, ServiceId, policy::template::policy_change_json,
};
use serde_json::json;
use uuid::Uuid;

/// The services that were open when the agent was created (`docs/spec.md` §2.6). Until the agent has a policy row for
/// such a service, the permissive policy with the caps of this set applies as version 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultServices {
    /// The ids of the default services, sorted and without duplicates.
    services: Vec<ServiceId>,
    caps: Option<StartingCaps>,
    /// The limits from a policy template, each with a sorted list of services.
    changes: Vec<(PolicyChange, Vec<ServiceId>)>,
}

/// The caps and the approval threshold in the policies of default services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartingCaps {
    /// The maximum amount of a call, in micro-USDC.
    pub max_per_call: Amount,
    /// The cap on the amount authorized within 24 hours.
    pub max_per_day: Amount,
    /// The approval threshold: calls above this amount need an approval.
    pub require_approval_above: Amount,
}

/// Creates the update that sets these caps and the threshold.
impl From<StartingCaps> for PolicyUpdate {
    fn from(caps: StartingCaps) -> Self {
        Self {
            max_per_call: Some(caps.max_per_call),
            max_per_day: Some(caps.max_per_day),
            require_approval_above: Some(caps.require_approval_above),
            ..Self::default()
        }
    }
}

impl DefaultServices {
    /// Creates a set of these services, without caps.
    pub fn new(services: impl IntoIterator<Item = ServiceId>) -> Self {
        let mut services: Vec<ServiceId> = services.into_iter().collect();
        services.sort_unstable();
        services.dedup();
        Self {
            services,
            caps: None,
            changes: Vec::new(),
        }
    }

    /// Sets the per-call cap, the daily cap and the approval threshold of the default policies.
    #[must_use]
    pub fn with_caps(self, caps: Option<StartingCaps>) -> Self {
        Self { caps, ..self }
    }

    /// Sets the limits of some services. Each service may be in only one list.
    #[must_use]
    pub fn with_changes(self, mut changes: Vec<(PolicyChange, Vec<ServiceId>)>) -> Self {
        for (_, services) in &mut changes {
            services.sort_unstable();
        }
        Self { changes, ..self }
    }

    /// Returns the limits from a policy template, each with a sorted list of services.
    pub fn policy_changes(&self) -> &[(PolicyChange, Vec<ServiceId>)] {
        &self.changes
    }

    /// Returns the caps in the default policies; `None` for policies without caps.
    pub const fn starting_caps(&self) -> Option<StartingCaps> {
        self.caps
    }

    /// Returns the policy that applies while the agent has no policy row for the service; `None` for other services.
    pub fn default_policy(&self, service: ServiceId) -> Option<EnabledService> {
        let record = EnabledService::pre_enabled(service);
        let record = match self.caps {
            None => record,
            Some(caps) => EnabledService {
                policy: record.policy.apply(&caps.into()),
                ..record
            },
        };
        let mut changes = self.changes.iter();
        let change = changes.find(|(_, services)| services.binary_search(&service).is_ok());
        let record = match change {
            None => record,
            Some((change, _)) => change.apply(service, Some(&record)),
        };
        self.contains(service).then_some(record)
    }

    /// Returns the services, sorted by id.
    pub fn service_ids(&self) -> &[ServiceId] {
        &self.services
    }

    /// Returns whether this service is one of the agent's default services.
    pub fn contains(&self, service: ServiceId) -> bool {
        self.services.binary_search(&service).is_ok()
    }

    /// Returns the set's storage key: the hash of the content. The set under a key never changes.
    pub fn digest(&self) -> Fingerprint {
        let mut bytes = self.to_bytes();
        if let Some(caps) = self.caps {
            // UUIDs take a multiple of 16 bytes and the caps 24 bytes, so a set with caps never has the bytes of a set
            // without caps.
            let amounts = [caps.max_per_call, caps.max_per_day, caps.require_approval_above];
            bytes.extend(amounts.into_iter().flat_map(|amount| amount.units().to_be_bytes()));
        }
        if !self.changes.is_empty() {
            let changes = self.changes.iter().map(|(change, services)| {
                let services: Vec<String> = services.iter().map(ToString::to_string).collect();
                json!([policy_change_json(change), services])
            });
            let text = json!([alloy_primitives::hex::encode(&bytes), changes.collect::<Vec<_>>()]).to_string();
            bytes = text.into_bytes();
            // Without changed limits, the number of bytes is a multiple of eight. Here the number is a
            // multiple of eight plus one, so the bytes always differ.
            bytes.resize(bytes.len().next_multiple_of(8).saturating_add(1), b' ');
        }
        Fingerprint::for_service_set(&bytes)
    }

    /// Returns the UUIDs of the services, 16 bytes each.
    pub fn to_bytes(&self) -> Vec<u8> {
        let uuids = self.services.iter().flat_map(|service| service.uuid().into_bytes());
        uuids.collect()
    }

    /// Parses the services from [`DefaultServices::to_bytes`]. The result has no caps and no changed limits. `None` if
    /// the bytes are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (uuids, rest) = bytes.as_chunks::<16>();
        let set = Self::new(uuids.iter().map(|uuid| ServiceId::from_uuid(Uuid::from_bytes(*uuid))));
        (rest.is_empty() && set.to_bytes() == bytes).then_some(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StartingLimits;

    fn service(number: u128) -> ServiceId {
        ServiceId::from_uuid(Uuid::from_u128(number))
    }

    #[test]
    fn the_digest_of_default_services_ignores_order_and_duplicates() {
        let set = DefaultServices::new([3, 1, 2, 1].map(service));
        assert_eq!(set.service_ids(), [1, 2, 3].map(service));
        assert_eq!(set.digest(), DefaultServices::new([1, 2, 3].map(service)).digest());
        assert_ne!(set.digest(), DefaultServices::new([1, 2].map(service)).digest());
        let caps = StartingLimits::Safe.to_caps();
        let limited = set.clone().with_caps(caps);
        let other = caps.map(|caps| StartingCaps {
            max_per_day: Amount::ZERO,
            ..caps
        });
        let digests = [&set, &limited, &set.clone().with_caps(other)].map(DefaultServices::digest);
        assert!(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]);
        assert_eq!(
            set.default_policy(service(1)),
            Some(EnabledService::pre_enabled(service(1)))
        );
        let change = PolicyChange {
            enabled: Some(false),
            policy: PolicyUpdate {
                max_per_day: Some(Amount::ONE),
                ..PolicyUpdate::default()
            },
        };
        let changed = |of: &[u128]| {
            let services = of.iter().copied().map(service).collect();
            limited.clone().with_changes(vec![(change.clone(), services)])
        };
        let of_two = changed(&[2, 1]);
        let record = of_two.default_policy(service(2)).unwrap();
        assert_eq!((record.version, record.enabled), (1, false));
        assert_eq!(record.policy.max_per_day, Amount::ONE);
        assert_eq!(
            record.policy.max_per_call,
            limited.default_policy(service(2)).unwrap().policy.max_per_call
        );
        assert_eq!(of_two.default_policy(service(3)), limited.default_policy(service(3)));
        assert_eq!(of_two.digest(), changed(&[1, 2]).digest());
        for other in [
            &limited,
            &changed(&[1]),
            &set.clone().with_changes(vec![(change.clone(), vec![service(1)])]),
        ] {
            assert_ne!(other.digest(), of_two.digest());
        }
        assert_eq!((set.starting_caps(), limited.starting_caps()), (None, caps));
        let record = limited.default_policy(service(1)).unwrap();
        assert_eq!((record.version, record.enabled), (1, true));
        assert_eq!(record.policy.max_per_day.units(), 10_000_000);
        assert_eq!(limited.default_policy(service(4)), None);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|number| set.contains(service(number))),
            [false, true, true, true, false]
        );
    }

    #[test]
    fn default_services_survive_encoding() {
        for set in [
            DefaultServices::new([]),
            DefaultServices::new([1, u128::MAX].map(service)),
        ] {
            assert_eq!(DefaultServices::from_bytes(&set.to_bytes()), Some(set));
        }
        let bytes = |numbers: &[u128]| {
            numbers
                .iter()
                .flat_map(|number| number.to_be_bytes())
                .collect::<Vec<u8>>()
        };
        for wrong in [bytes(&[2, 1]), bytes(&[1, 1]), vec![0; 15], vec![0; 17]] {
            assert_eq!(DefaultServices::from_bytes(&wrong), None);
        }
    }
}
