//! Finds projects and workspaces by id, endpoint or name.

use api::control::{
    projects::{self, Project, ProjectList},
    workspaces::{self, Workspace, WorkspaceList},
};

use super::{PlatformError, Session};
use crate::failure::{Code, Failure};
use crate::id_prefix::{self, Candidate};

impl Session {
    /// The named project (by id, endpoint or name), or else the selected one.
    pub(crate) async fn project(&self, given: Option<&str>) -> Result<Project, Failure> {
        if let Some(text) = given {
            return self.find_project(text).await;
        }
        let selected = self
            .context
            .as_ref()
            .and_then(|context| context.project.as_ref())
            .ok_or_else(|| {
                Failure::usage("no project is selected")
                    .hint("select one with `svc project use <name>`, or give --project")
            })?;
        match self.project_by_id(&selected.id).await {
            Err(error) if error.is_not_found() => Err(Failure::new(
                Code::Failed,
                format!(
                    "the selected project {} no longer exists",
                    selected.endpoint
                ),
            )
            .hint("`svc project list` shows the existing ones")),
            other => Ok(other?),
        }
    }

    /// Finds a project by its id, endpoint or name. Suggests a similar name if there is none.
    pub(crate) async fn find_project(&self, text: &str) -> Result<Project, Failure> {
        if text.starts_with("prj_") {
            match self.project_by_id(text).await {
                Err(error) if error.is_not_found() => {}
                other => return Ok(other?),
            }
        } else if is_endpoint(text) {
            let resolved = self.platform.call(projects::RESOLVE, &[text]);
            match resolved.answer().await {
                Err(error) if PlatformError::is_not_found(&error) => {}
                other => return Ok(other?),
            }
        }
        let named = self.some_projects(Some(text)).await?;
        let mut same = named.iter().filter(|project| project.name == text);
        match (same.next(), same.next()) {
            (Some(project), None) => return Ok(project.clone()),
            (Some(_), Some(_)) => {
                return Err(Failure::new(
                    Code::Failed,
                    format!("several projects are called `{text}`"),
                )
                .hint("select it by its endpoint; `svc project list` shows them"));
            }
            (None, _) => {}
        }
        if let Some(id) = self.project_id(text).await? {
            return Ok(self.project_by_id(&id).await?);
        }
        let all = self.some_projects(None).await?;
        let known = all
            .iter()
            .flat_map(|project| [project.name.as_str(), project.endpoint.as_str()]);
        Err(not_found("project", text, known, "svc project list"))
    }

    /// The id of the project whose id or endpoint starts with `text`.
    async fn project_id(&self, text: &str) -> Result<Option<String>, Failure> {
        let is_of_endpoint = is_start_of_endpoint(text);
        if !is_of_endpoint && !id_prefix::is_prefix(text) {
            return Ok(None);
        }
        let of_page = |list: ProjectList| {
            let projects = list.projects.into_iter();
            projects
                .map(|project| {
                    if is_of_endpoint {
                        Candidate::new(project.endpoint, project.name)
                    } else {
                        Candidate::new(project.id, project.name)
                    }
                })
                .collect()
        };
        let all = self.candidates(projects::LIST, &[], of_page).await?;
        let Some(found) = id_prefix::select("project", text, all)? else {
            return Ok(None);
        };
        if !is_of_endpoint {
            return Ok(Some(found.id));
        }
        let resolved = self.platform.call(projects::RESOLVE, &[&found.id]);
        let project: Project = resolved.answer().await?;
        Ok(Some(project.id))
    }

    /// The caller's projects, limited to one page.
    pub(crate) async fn projects(&self) -> Result<Vec<Project>, Failure> {
        self.some_projects(None).await
    }

    /// The named workspace (by id or name), or else that of the context, or else the only one.
    pub(crate) async fn workspace(&self, given: Option<&str>) -> Result<Workspace, Failure> {
        let list: WorkspaceList = self
            .platform
            .call(workspaces::LIST, &[])
            .answer()
            .await
            .map_err(Failure::from)?;
        let all = list.workspaces;
        let kept = self
            .context
            .as_ref()
            .and_then(|context| context.workspace_id.as_deref());
        let text = match (given.or(kept), all.as_slice()) {
            (Some(text), _) => text,
            (None, [only]) => return Ok(only.clone()),
            (None, []) => {
                return Err(Failure::new(
                    Code::Failed,
                    "you are not a member of a workspace",
                ));
            }
            (None, _) => {
                return Err(Failure::usage("you are a member of several workspaces")
                    .hint("select one with --workspace; `svc workspace list` shows them"));
            }
        };
        let mut same = all
            .iter()
            .filter(|workspace| workspace.id == text || workspace.name == text);
        match (same.next(), same.next()) {
            (Some(workspace), None) => Ok(workspace.clone()),
            (Some(_), Some(_)) => {
                let message = format!("several workspaces are called `{text}`");
                Err(Failure::new(Code::Failed, message)
                    .hint("select it by its id; `svc workspace list` shows them"))
            }
            (None, _) => {
                let ids = all
                    .iter()
                    .map(|workspace| Candidate::new(&workspace.id, &workspace.name));
                let found = if id_prefix::is_prefix(text) {
                    id_prefix::select("workspace", text, ids.collect())?
                } else {
                    None
                };
                let is_found = |workspace: &&Workspace| {
                    found.as_ref().is_some_and(|found| found.id == workspace.id)
                };
                if let Some(workspace) = all.iter().find(is_found) {
                    return Ok(workspace.clone());
                }
                let known = all.iter().map(|workspace| workspace.name.as_str());
                Err(not_found("workspace", text, known, "svc workspace list"))
            }
        }
    }

    async fn project_by_id(&self, id: &str) -> Result<Project, PlatformError> {
        self.platform.call(projects::GET, &[id]).answer().await
    }

    /// One page of projects. A name on a later page is found with `q`.
    async fn some_projects(&self, q: Option<&str>) -> Result<Vec<Project>, Failure> {
        let call = self.platform.call(projects::LIST, &[]);
        let list: ProjectList = call
            .query("q", q)
            .query("pageSize", Some(api::control::MAX_PAGE_SIZE))
            .answer()
            .await
            .map_err(Failure::from)?;
        Ok(list.projects)
    }
}

/// True if the text has the form of an endpoint.
pub(crate) fn is_endpoint(text: &str) -> bool {
    text.len() == 8
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// True for the start of an endpoint. A shorter one would be a guess.
fn is_start_of_endpoint(text: &str) -> bool {
    (4..8).contains(&text.len())
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The failure for an unknown name, with the most similar one.
pub(crate) fn not_found<'a>(
    kind: &str,
    text: &str,
    known: impl Iterator<Item = &'a str>,
    list: &str,
) -> Failure {
    let failure = Failure::new(Code::Failed, format!("{kind} `{text}` does not exist"));
    let lower = text.to_lowercase();
    let nearest = known
        .map(|name| (strsim::jaro_winkler(&name.to_lowercase(), &lower), name))
        .filter(|(likeness, _)| *likeness >= MIN_SIMILARITY)
        .max_by(|one, other| one.0.total_cmp(&other.0));
    match nearest {
        Some((_, name)) => failure.hint(format!("did you mean `{name}`?")),
        None => failure.hint(format!("`{list}` shows the existing ones")),
    }
}

/// Similarity threshold: allows one added, missing or swapped letter in a short word. Words that
/// only share a prefix are below it.
const MIN_SIMILARITY: f64 = 0.85;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_name_is_suggested() {
        let known = ["production", "staging"];
        let hint =
            |text| not_found("project", text, known.into_iter(), "svc project list").to_string();
        assert!(hint("stagin").contains("did you mean `staging`?"));
        assert!(hint("Produciton").contains("did you mean `production`?"));
        assert!(
            hint("db").contains("`svc project list` shows"),
            "{}",
            hint("db")
        );
    }

    #[test]
    fn endpoints_can_be_given_by_their_start() {
        assert!(is_start_of_endpoint("e7e8") && is_start_of_endpoint("e7e8a73"));
        for text in ["e7e", "e7e8a732", "web1", "E7E8", "prj_0"] {
            assert!(!is_start_of_endpoint(text), "{text}");
        }
    }

    #[test]
    fn endpoints_and_names_are_distinguished() {
        assert!(is_endpoint("e7e8a732"));
        for name in ["e7e8a73", "E7E8A732", "staging1", "e7e8a7321"] {
            assert!(!is_endpoint(name), "{name}");
        }
    }
}
