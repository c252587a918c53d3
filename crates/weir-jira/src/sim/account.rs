//! The accounts of the simulator, and their rights.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::wire::Request;

/// An account. The e-mail address of a request selects it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Account {
    /// Has all rights.
    #[default]
    Admin,
    /// Has all rights, except those to administer projects and the site.
    Member,
    /// Reads the first project.
    Outsider,
}

impl Account {
    /// The account with this e-mail address, or at Data Center with this user name. Every address
    /// that belongs to no other account is one of the administrator.
    fn of(login: &str) -> Self {
        match login {
            "member" | "member@example.com" => Self::Member,
            "outsider" | "outsider@example.com" => Self::Outsider,
            _ => Self::Admin,
        }
    }

    /// The account of a request; `None` if the request does not have the `required` e-mail address
    /// and token. All accounts have the same token.
    pub(super) fn of_request(
        required: Option<&(String, String)>,
        request: &Request,
    ) -> Option<Self> {
        let given = request.header("authorization").unwrap_or_default();
        let login = given.strip_prefix("Basic ");
        let login = login.and_then(|encoded| STANDARD.decode(encoded).ok());
        let login = login.and_then(|bytes| String::from_utf8(bytes).ok());
        let login = login.unwrap_or_default();
        let (email, token) = login.split_once(':').unwrap_or_default();
        let account = Self::of(email);
        let Some((required_email, required_token)) = required else {
            return Some(account);
        };
        if required_email.is_empty() {
            let is_valid = given == format!("Bearer {required_token}");
            return is_valid.then_some(Self::Admin);
        }
        let is_known = email == required_email || account != Self::Admin;
        (is_known && token == required_token).then_some(account)
    }

    /// The position of its user among the users of the site.
    pub(super) fn user(self) -> usize {
        match self {
            Self::Admin => 0,
            Self::Member => 1,
            Self::Outsider => 2,
        }
    }

    /// Whether it lacks a right.
    pub(super) fn lacks(self, right: &str) -> bool {
        match self {
            Self::Admin => false,
            Self::Member => right.starts_with("ADMINISTER"),
            Self::Outsider => right != "BROWSE_PROJECTS",
        }
    }
}
