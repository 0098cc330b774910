use super::{RuleParameters, rule_kind};
use crate::{
    Block, CallInputs, Catalog, Category, Check, CheckName, ValidationError,
    policy::{check::FirstFailure, rule::selection_errors},
};

rule_kind! {
    /// Payments in these categories are blocked.
    CategoryBlock = "category_block" {
        /// The blocked categories, which are compared with the operation's and the service's category.
        categories: Vec<Category> = "categories",
    }
}

impl RuleParameters for CategoryBlock {
    fn is_as_strict_as(&self, before: &Self) -> bool {
        before
            .categories
            .iter()
            .all(|category| self.categories.contains(category))
    }

    fn parameter_errors(&self, _: &Catalog) -> Vec<ValidationError> {
        selection_errors("/categories", Some(&self.categories))
    }
}

/// Makes check 7 of `docs/errors.md` §4: no rule blocks the category of the call.
pub(in crate::policy) fn check_category(failure: &mut FirstFailure, inputs: &CallInputs<'_>) -> Check {
    let mut blocks = inputs.agent.rules.iter().filter_map(|rule| rule.kind.as_kind());
    let blocked = blocks.find_map(|block: &CategoryBlock| {
        let mut categories = inputs.categories();
        categories.find(|category| block.categories.contains(category))
    });
    failure.record_check(CheckName::Category, blocked.is_none(), || {
        Block::Category(blocked.unwrap_or(inputs.service.category)).into()
    })
}
