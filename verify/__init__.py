"""From stored weights to witness ≤ certified ≤ bound."""
