"""Every page of the portal, in every state: what tests look at, and pictures are made of."""

from urllib.parse import quote

from tests.service.running import Running

#: Pages of a record as tests/service/portal.py writes it, with the campaign of tests/service/campaigns.py,
#: that nothing has to be known for.
PLAIN = {
    "queue": "/portal/queue",
    "overview": "/portal/",
    "fixes": "/portal/fixes",
    "no-such-fix": "/portal/fixes?text=no-such",
    "fix": "/portal/fixes/fix-cap",
    "fix-with-model": "/portal/fixes/fix-budget",
    "triage": "/portal/fixes/fix-same/triage",
    "triage-of-budget": "/portal/fixes/fix-budget/triage",
    "triage-of-gates": "/portal/fixes/fix-gates/triage",
    "event": "/portal/fixes/fix-cap/events/8",
    "alike": "/portal/fixes/fix-gates/alike",
    "campaigns": "/portal/campaigns",
    "campaign": "/portal/campaigns/spring",
    "campaign-state": "/portal/campaigns/spring?state=failed",
    "verification": "/portal/verification",
    "settings": "/portal/settings",
    "error": "/portal/no-such-page",
}

#: Of a service with nothing on record.
EMPTY = {
    "empty-queue": "/portal/queue",
    "empty-overview": "/portal/",
    "empty-fixes": "/portal/fixes",
    "empty-campaigns": "/portal/campaigns",
    "empty-verification": "/portal/verification",
}

#: A configuration with every way to sign in.
EVERY_WAY = (
    '[people]\nlocal = true\n[people.oidc]\nissuer = "https://id.example.org"\nclient_id = "x"\n'
    'public_url = "https://fixes.example.org"\nroles = { security = ["read"] }\n'
)


def pages(server: Running) -> dict[str, str]:
    """By name; with those whose addresses the record tells."""
    found = dict(PLAIN)
    for name in ("fix-same", "fix-cap"):
        items = server.get(f"/v1/fixes/{name}/evidence")["evidence"]
        for item in items:
            found[f"evidence-{item['kind']}"] = f"/portal/fixes/{name}/evidence/{item['sha256']}"
    question = server.get("/v1/reviews/fix-same")["question"]
    found["advisory"] = f"/portal/advisory?id={quote(question['advisory_id'], safe='')}"
    found["repository"] = f"/portal/repository?name={quote(question['repository'], safe='')}"
    return found
