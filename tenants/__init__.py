"""Who owns what: tenants, where their memories live, and the credentials that open them."""
