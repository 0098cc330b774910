//! Operations on policy templates. They never change an agent's limits (`apply.rs` does).

use crate::caller::Caller;
use crate::state::People;
use purser_api::Precondition;
use purser_domain::{
    Act, AuditChanges, AuditFields, AuditKind, Error, ErrorKind, PolicyTemplate, Result, TemplateList, TemplateName,
    TemplateTerms, ValidationError,
};
use purser_store::{Backoff, UpdateResult};

/// A user's template, and whether new agents follow it by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnTemplate {
    pub(crate) template: PolicyTemplate,
    pub(crate) is_default: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateUpdate {
    pub(crate) terms: TemplateTerms,
    /// Whether the template becomes the default; `None` leaves the setting unchanged.
    pub(crate) default: Option<bool>,
}

impl OwnTemplate {
    fn audit_log_fields(&self) -> AuditFields {
        let mut fields = vec![("default".to_owned(), self.is_default.into())];
        fields.extend(self.template.terms.audit_fields());
        fields
    }
}

impl People {
    pub(crate) async fn list_templates(&self, user: &Caller) -> Result<TemplateList> {
        self.ledger.read_template_list(&user.id).await
    }

    /// Returns `not_found` if the user has no template with this name.
    pub(crate) async fn read_template(&self, user: &Caller, name: &TemplateName) -> Result<OwnTemplate> {
        let list = self.list_templates(user).await?;
        let found = self.find_listed_template(user, &list, name).await?;
        found.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// If the user has no such template, the error is a validation error at `/template`.
    pub(crate) async fn find_template(&self, user: &Caller, name: &TemplateName) -> Result<PolicyTemplate> {
        let list = self.list_templates(user).await?;
        let found = self.find_listed_template(user, &list, name).await?;
        let error = || ValidationError::at_path("/template", "must be the name of one of your policy templates");
        found
            .map(|own| own.template)
            .ok_or_else(|| Error::invalid(vec![error()]))
    }

    pub(crate) async fn read_default_template(&self, user: &Caller) -> Result<Option<PolicyTemplate>> {
        let list = self.list_templates(user).await?;
        let Some(name) = &list.default else {
            return Ok(None);
        };
        let found = self.find_listed_template(user, &list, name).await?;
        Ok(found.map(|own| own.template))
    }

    async fn find_listed_template(
        &self,
        user: &Caller,
        list: &TemplateList,
        name: &TemplateName,
    ) -> Result<Option<OwnTemplate>> {
        let Some(entry) = list.entries.get(name) else {
            return Ok(None);
        };
        let terms = self.ledger.read_template_limits(&user.id, entry.version).await?;
        let terms = terms
            .ok_or_else(|| Error::internal("reading a policy template", "the template's version does not exist"))?;
        Ok(Some(OwnTemplate {
            template: PolicyTemplate {
                name: name.clone(),
                version: entry.version,
                edited_at: entry.edited_at,
                terms,
            },
            is_default: list.default.as_ref() == Some(name),
        }))
    }

    /// Creates the template, or replaces the limits if `if_match` is `Some`. Returns whether the template is new.
    pub(crate) async fn put_template(
        &self,
        user: &Caller,
        name: &TemplateName,
        if_match: Option<Precondition>,
        update: &TemplateUpdate,
    ) -> Result<(OwnTemplate, bool)> {
        let is_new = !self.list_templates(user).await?.entries.contains_key(name);
        let kind = if is_new {
            AuditKind::PolicyTemplateCreated
        } else {
            AuditKind::PolicyTemplateEdited
        };
        let action = Act::new(kind).with_object(name);
        let put = self.store_template(user, name, if_match, update, &action);
        self.audit_rejection(&user.acting, &action, put).await
    }

    async fn store_template(
        &self,
        user: &Caller,
        name: &TemplateName,
        if_match: Option<Precondition>,
        update: &TemplateUpdate,
        action: &Act,
    ) -> Result<(OwnTemplate, bool)> {
        let mut backoff = Backoff::new();
        loop {
            let list = self.list_templates(user).await?;
            let before = self.find_listed_template(user, &list, name).await?;
            match (&before, if_match) {
                (Some(_), None) => return Err(ErrorKind::VersionRequired.into()),
                (Some(own), Some(if_match)) => if_match.check_version(own.template.version)?,
                (None, None | Some(Precondition::Version(0))) => {}
                (None, Some(_)) => return Err(ErrorKind::NotFound.into()),
            }
            let is_edited = before.as_ref().is_none_or(|own| own.template.terms != update.terms);
            let next = list.with_template(name, is_edited, update.default, self.now());
            let next = next.ok_or_else(too_many_templates_error)?;
            let entry = next.entries.get(name).copied();
            let entry = entry.ok_or_else(|| {
                Error::internal(
                    "updating a policy template",
                    "the updated list does not contain the template",
                )
            })?;
            let after = OwnTemplate {
                template: PolicyTemplate {
                    name: name.clone(),
                    version: entry.version,
                    edited_at: entry.edited_at,
                    terms: update.terms.clone(),
                },
                is_default: next.default.as_ref() == Some(name),
            };
            if before.as_ref() == Some(&after) {
                return Ok((after, false));
            }
            let changes = AuditChanges::between(
                before.as_ref().map(OwnTemplate::audit_log_fields),
                Some(after.audit_log_fields()),
            );
            let row = self.audit_entry(&user.acting, action, changes)?;
            let terms = is_edited.then_some(&update.terms);
            match self.ledger.put_templates(&user.id, &next, terms, &row).await? {
                UpdateResult::Stored => return Ok((after, before.is_none())),
                UpdateResult::Conflict => backoff.wait_for_retry().await?,
            }
        }
    }

    /// Removes a template. The agents that follow it keep their limits.
    pub(crate) async fn remove_template(
        &self,
        user: &Caller,
        name: &TemplateName,
        if_match: Precondition,
    ) -> Result<OwnTemplate> {
        let action = Act::new(AuditKind::PolicyTemplateRemoved).with_object(name);
        let removed = async {
            let mut backoff = Backoff::new();
            loop {
                let list = self.list_templates(user).await?;
                let before = self.find_listed_template(user, &list, name).await?;
                let before = before.ok_or(ErrorKind::NotFound)?;
                if_match.check_version(before.template.version)?;
                let changes = AuditChanges::between(Some(before.audit_log_fields()), None);
                let row = self.audit_entry(&user.acting, &action, changes)?;
                match self
                    .ledger
                    .put_templates(&user.id, &list.without_template(name), None, &row)
                    .await?
                {
                    UpdateResult::Stored => return Ok(before),
                    UpdateResult::Conflict => backoff.wait_for_retry().await?,
                }
            }
        };
        self.audit_rejection(&user.acting, &action, removed).await
    }
}

fn too_many_templates_error() -> Error {
    let message = format!(
        "a person has at most {} policy templates; remove one first",
        TemplateList::MAX
    );
    Error::invalid(vec![ValidationError::at_path("", message)])
}
