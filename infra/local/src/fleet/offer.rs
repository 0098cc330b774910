//! What the agents of the demo fleet are for, and the catalog's operations that they buy.

/// An operation of `catalog.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The service's slug.
    pub(crate) service: &'static str,
    /// The operation's slug.
    pub(crate) operation: &'static str,
}

const fn offer(service: &'static str, operation: &'static str) -> Offer {
    Offer { service, operation }
}

pub(crate) const PAPERS: Offer = offer("atlas-search", "papers.search");
const PATENTS: Offer = offer("atlas-search", "patents.search");
pub(crate) const WEB_SEARCH: Offer = offer("lab-search", "web.search");
pub(crate) const RATES: Offer = offer("meridian-fx", "rates.live");
const URL_REPUTATION: Offer = offer("sentinel-scan", "url.reputation");
pub(crate) const CHAT: Offer = offer("parley-models", "chat.complete");
pub(crate) const EMBEDDING: Offer = offer("parley-models", "text.embed");
pub(crate) const CRAWL: Offer = offer("tidepool-crawl", "site.crawl");
const SCRAPE: Offer = offer("lab-scrape", "web.scrape");
pub(crate) const IMAGE: Offer = offer("quillmark-images", "image.generate");
pub(crate) const REPORT: Offer = offer("lab-reports", "report.short");
pub(crate) const PREMIUM_REPORT: Offer = offer("lab-reports", "report.premium");
const COMPANY: Offer = offer("ledgerline-data", "companies.lookup");
const WEATHER: Offer = offer("lab-weather", "weather.current");
const SANDBOX: Offer = offer("halyard-compute", "sandbox.run");

/// All services that the fleet buys from.
pub(crate) const SERVICES: [&str; 12] = [
    "atlas-search",
    "halyard-compute",
    "lab-reports",
    "lab-scrape",
    "lab-search",
    "lab-weather",
    "ledgerline-data",
    "meridian-fx",
    "parley-models",
    "quillmark-images",
    "sentinel-scan",
    "tidepool-crawl",
];

/// What an agent is for. Its name begins with that of its kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) team: &'static str,
    pub(crate) cost_centre: &'static str,
    /// What it buys, at least one.
    pub(crate) offers: &'static [Offer],
}

pub(crate) static RESEARCH: Kind = Kind {
    name: "research",
    team: "research",
    cost_centre: "cc-310",
    offers: &[PAPERS, PATENTS, WEB_SEARCH],
};
pub(crate) static CHECKOUT: Kind = Kind {
    name: "checkout",
    team: "payments",
    cost_centre: "cc-220",
    offers: &[RATES, URL_REPUTATION],
};
pub(crate) static SUPPORT: Kind = Kind {
    name: "support",
    team: "support",
    cost_centre: "cc-140",
    offers: &[CHAT, EMBEDDING],
};
pub(crate) static CRAWLER: Kind = Kind {
    name: "crawler",
    team: "data",
    cost_centre: "cc-330",
    offers: &[CRAWL, SCRAPE],
};
pub(crate) static DESIGN: Kind = Kind {
    name: "design",
    team: "marketing",
    cost_centre: "cc-450",
    offers: &[IMAGE],
};
pub(crate) static REPORTS: Kind = Kind {
    name: "reports",
    team: "finance",
    cost_centre: "cc-210",
    offers: &[REPORT, COMPANY],
};
pub(crate) static FORECAST: Kind = Kind {
    name: "forecast",
    team: "operations",
    cost_centre: "cc-120",
    offers: &[WEATHER],
};
pub(crate) static BUILD: Kind = Kind {
    name: "build",
    team: "platform",
    cost_centre: "cc-330",
    offers: &[SANDBOX],
};

/// All kinds.
pub(crate) static KINDS: [&Kind; 8] = [
    &RESEARCH, &CHECKOUT, &SUPPORT, &CRAWLER, &DESIGN, &REPORTS, &FORECAST, &BUILD,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offer_is_of_a_listed_service() {
        let bought = KINDS.iter().flat_map(|kind| kind.offers);
        for offer in bought.chain([&PREMIUM_REPORT]) {
            assert!(SERVICES.contains(&offer.service), "{offer:?}");
        }
    }
}
