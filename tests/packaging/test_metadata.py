"""One version, exact pins between siblings, and nothing of this machine in a wheel."""

import email
import re
import zipfile


def siblings(requirements):
    return [text for text in requirements if re.match(r"nabla\b", text)]


def test_all_distributions_have_one_version(projects):
    versions = {
        project["project"]["name"]: project["project"]["version"] for project in projects.values()
    }

    assert len(versions) >= 5
    assert len(set(versions.values())) == 1, versions


def test_siblings_are_pinned_exactly(projects):
    version = next(iter(projects.values()))["project"]["version"]
    loose = []
    for project in projects.values():
        table = project["project"]
        extras = table.get("optional-dependencies", {}).values()
        wanted = [*table.get("dependencies", ()), *(text for extra in extras for text in extra)]
        loose += [text for text in siblings(wanted) if not text.endswith(f"=={version}")]

    assert loose == []


def test_extra_all_holds_every_distribution(projects):
    root = next(p["project"] for p in projects.values() if p["project"]["name"] == "nabla")
    names = {project["project"]["name"] for project in projects.values()}

    held = {text.split("==")[0] for text in root["optional-dependencies"]["all"]}

    held = {name.partition("[")[0] for name in held}
    frameworks = {"nabla-hf", "nabla-lightning", "nabla-keras"}  # asked for by name
    assert held | frameworks | {"nabla-core", "nabla"} == names
    assert frameworks <= {f"nabla-{extra}" for extra in root["optional-dependencies"]}


def test_wheels_have_exact_pins_and_no_paths(wheels, projects):
    checked = 0
    for path in wheels.glob("nabla*.whl"):
        with zipfile.ZipFile(path) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
            metadata = wheel.read(name).decode()
        required = email.message_from_string(metadata).get_all("Requires-Dist") or []
        assert "file:" not in metadata and " @ " not in "".join(required)
        assert all("==0.1.0" in text for text in siblings(required)), required
        checked += 1

    assert checked == len(projects)


def test_the_root_wheel_holds_no_code(wheels):
    (path,) = wheels.glob("nabla-0*.whl")
    with zipfile.ZipFile(path) as wheel:
        assert [name for name in wheel.namelist() if ".dist-info/" not in name] == []


def test_packages_ship_their_types(wheels):
    for path in wheels.glob("nabla_*.whl"):
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
        packages = {name.split("/")[0] for name in names if ".dist-info/" not in name}
        assert [p for p in packages if f"{p}/py.typed" not in names] == []
