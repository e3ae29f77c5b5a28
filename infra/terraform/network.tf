# VMs are created in the network `default`, with external addresses. SSH is allowed from `ssh_ranges` only: the second rule
# overrides `default-allow-ssh` and `default-allow-rdp`, which a new project's network has at priority 65534.

resource "google_compute_network" "default" {
  count = var.make_network ? 1 : 0

  name                    = "default"
  auto_create_subnetworks = true
  depends_on              = [google_project_service.api]
}

locals {
  network = var.make_network ? google_compute_network.default[0].name : "default"
}

resource "google_compute_firewall" "ssh" {
  name          = "orchestrate-ssh"
  network       = local.network
  priority      = 1000
  source_ranges = var.ssh_ranges

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }

  depends_on = [google_project_service.api]
}

resource "google_compute_firewall" "nobody_else" {
  name          = "orchestrate-nobody-else"
  network       = local.network
  priority      = 1100
  source_ranges = ["0.0.0.0/0"]

  deny {
    protocol = "tcp"
    ports    = ["22", "3389"]
  }

  depends_on = [google_project_service.api]
}

# Traffic between the workers of one VM or slice; a network that Google created has such a rule.
resource "google_compute_firewall" "internal" {
  count = var.make_network ? 1 : 0

  name          = "orchestrate-internal"
  network       = local.network
  priority      = 1050
  source_ranges = ["10.128.0.0/9"]

  allow {
    protocol = "tcp"
  }
  allow {
    protocol = "udp"
  }
  allow {
    protocol = "icmp"
  }
}
