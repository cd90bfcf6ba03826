"""``python -m tests.sync.mutants``: every mutant, the rule that it breaks, and the check that catches it."""

from tests.sync.mutants import CATCHES, MUTANTS

print("| Mutant | Rule that it breaks | Caught by |")
print("|---|---|---|")
for name, mutant in MUTANTS.items():
    print(f"| {name} | {mutant.rule} | `{CATCHES[name].check}` |")
