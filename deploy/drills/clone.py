"""The drill of a copied device: two files with one replica id and one token, and nothing written in either
is lost. ``python deploy/drills/clone.py``
"""

from __future__ import annotations

import json

from stage import DrillFailed, Stage, perform

NOTE = "The spare key is under the blue pot"
ON_PHONE = "Written on the phone"
ON_COPY = "Written on the copy"
LAST = "Written before it was enrolled again"
REFRESH = (
    "python -c 'import sys; from client_sync import Remote; from client_sync.credentials import"
    ' DeviceCredentials; given = DeviceCredentials.load(f"{sys.argv[1]}/device.json");'
    " Remote(given.target, given).replace_token(given.token)'"
)


def drill(place: Stage) -> None:
    """Each step, shown and checked."""
    place.step("A server and a phone")
    place.start_server()
    place.enrol("phone")
    place.run(f'scrubjay --home phone add "{NOTE}"')
    place.run("scrubjay --home phone sync")
    client_id = json.loads(place.run("scrubjay --home phone status --json"))["client_id"]

    place.step("Copy the phone's folder, and write in both")
    place.run("cp -a phone copy")
    place.run(f'scrubjay --home phone add "{ON_PHONE}"')
    place.run(f'scrubjay --home copy add "{ON_COPY}"')

    place.step("The first to sync syncs as ever; the second is told that its numbers were used")
    place.run("scrubjay --home phone sync")
    told = place.run("scrubjay --home copy sync")
    if "a copy or a backup" not in told:
        raise DrillFailed("the copy was not noticed")
    place.run("scrubjay --home phone sync")
    for home in ("phone", "copy"):
        place.expect(home, {NOTE, ON_PHONE, ON_COPY})

    place.step("An hour later both ask for the next token: the server sees that two have it")
    place.run(f"{REFRESH} phone")
    place.run("scrubjay --home phone sync")
    place.run(f"{REFRESH} copy 2>&1 | tail -n 1")
    for home in ("phone", "copy"):
        place.run(f"scrubjay --home {home} sync", code=1)

    place.step("Work goes on offline; each is enrolled again, as the same client")
    place.run(f'scrubjay --home copy add "{LAST}"')
    for home in ("copy", "phone"):
        place.enrol(home, "--client-id", client_id)

    place.step("Look: nothing of either is lost")
    for home in ("phone", "copy"):
        place.expect(home, {NOTE, ON_PHONE, ON_COPY, LAST})


if __name__ == "__main__":
    perform(drill, "Both folders hold everything that was written in either.")
